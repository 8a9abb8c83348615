package main

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cohort-hpc/cohort"
	"github.com/cohort-hpc/cohort/hybrid"
	"github.com/cohort-hpc/cohort/sddp"
	"github.com/cohort-hpc/cohort/sddp/report"
)

// asCommand makes this test binary be the command.
const asCommand = "SDDP_TEST_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

// commandOf returns a run of the command that has not started.
func commandOf(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	return cmd
}

// sddpRun runs the command and returns its status and what it wrote.
func sddpRun(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	cmd := commandOf(t, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func caseDir(name string) string { return filepath.Join("..", "..", "cases", name) }

func TestHelpAndUsageErrors(t *testing.T) {
	for _, k := range []struct {
		args   string
		status int
		out    string // in what is written to standard output
		err    string // in what is written to standard error
	}{
		{"", 2, "", "Usage:"},
		{"help", 0, "sddp train", ""},
		{"--help", 0, "sddp train", ""},
		{"help train", 0, "--iterations", ""},
		{"train --help", 0, "--iterations", ""},
		{"simulate -h", 0, "--policy", ""},
		{"help walk", 2, "", `unknown command "walk"`},
		{"trian", 2, "", `unknown command "trian"; did you mean train?`},
		{"train", 2, "", "got 0 arguments, want one CASE: the folder of a case"},
		{"train a b", 2, "", "got 2 arguments"},
		{"train a --scenario 3", 2, "", "unknown flag: --scenario; did you mean --scenarios?"},
		{"train a --iterations", 2, "", "flag needs an argument: --iterations"},
		{"train a --iterations many", 2, "", "--iterations many: want a whole number from 1 to 100000"},
		{"train a --passes 0", 2, "", "--passes 0: want a whole number from 1 to"},
		{"train a --gap 7", 2, "", "--gap 7: want a number from 0 to below 1"},
		{"train a --gap-scenarios 399", 2, "", "--gap-scenarios 399: want a whole number from 400"},
		{"train a --cvar-lambda 2", 2, "", "--cvar-lambda 2: want a number from 0 to 1"},
		{"train a --cvar-alpha 0", 2, "", "--cvar-alpha 0: want a number above 0"},
		{"train a --gap 0.1 --cvar-lambda 0.5", 2, "", "the gap is unknown"},
		{"train a --multi-cut --cvar-lambda 0.5", 2, "", "--multi-cut: it keeps a cut for each opening, while --cvar-lambda"},
		{"train a --multi-cut --cut-selection", 2, "", "--multi-cut: it keeps a cut for each opening, while --cvar-lambda and --cut-selection"},
		{"train a --stall-tolerance 1", 2, "", "--stall-tolerance 1: want a number between 0 and 1"},
		{"train a --time-limit 5", 2, "", "--time-limit 5: want a time, such as 90s"},
		{"train a --seed -1", 2, "", "--seed -1: want a whole number from 0 to 18446744073709551615"},
		{"train a --threads 0", 2, "", "--threads 0: want a whole number from 1 to"},
		{"train a --threads two", 2, "", "--threads two: want a whole number"},
		{"train a --solver glpk", 2, "", "--solver glpk: want auto, embedded or clp"},
		{"train a --pin core", 2, "", "--pin core: want none, cores or numa; did you mean none or cores?"},
		{"train a --resume", 2, "", "--resume needs the folder of the checkpoints"},
		{"train a --checkpoint-every 0 --checkpoint d", 2, "", "--checkpoint-every 0: want"},
		{"train a --resume b --resume c", 2, "", "got 3 arguments, want one CASE"},
		{"simulate a --policy p --resume d", 2, "", "--resume"},
		{"simulate a --policy p --pin socket", 2, "", "--pin socket: want none, cores or numa"},
		{"simulate a", 2, "", "--policy is missing"},
		{"simulate a --policy p --scenarios 1", 2, "", "--scenarios 1: want a whole number from 2 to"},
		{"info", 2, "", "got 0 arguments"},
		{"__complete train --solver e", 0, "embedded", "Completion"},
	} {
		status, out, errs := sddpRun(t, strings.Fields(k.args)...)
		if status != k.status || !strings.Contains(out, k.out) || !strings.Contains(errs, k.err) || (k.out == "") != (out == "") || (k.err == "") != (errs == "") {
			t.Errorf("sddp %s: status %d, output %q, errors %q; want %d, %q, %q", k.args, status, out, errs, k.status, k.out, k.err)
		}
	}
}

// result is the JSON line.
type result struct {
	LowerBound float64 `json:"lower_bound"`
	UpperMean  float64 `json:"upper_mean"`
	UpperCI95  float64 `json:"upper_ci95"`
	UpperCVaR  float64 `json:"upper_cvar"`
	Iterations int     `json:"iterations"`
	Cuts       int     `json:"cuts"`
	CutsSHA256 string  `json:"cuts_sha256"`
	Ranks      int     `json:"ranks"`
	Seconds    float64 `json:"seconds"`
}

// lastLine decodes the last line, which must have exactly these fields.
func lastLine(t testing.TB, out string) (r result) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	dec := json.NewDecoder(strings.NewReader(lines[len(lines)-1]))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		t.Fatalf("last line %q: %v", lines[len(lines)-1], err)
	}
	return r
}

// The flags stand before or after the case.
func TestTrainToyAsInReadme(t *testing.T) {
	const flags = "--json --iterations 4 --passes=2 --openings 3"
	before := append(append([]string{"train"}, strings.Fields(flags)...), caseDir("toy"))
	after := append([]string{"train", caseDir("toy")}, strings.Fields(flags)...)
	var hash string
	for _, args := range [][]string{before, after} {
		status, out, errs := sddpRun(t, args...)
		if status != 0 {
			t.Fatalf("sddp %v: status %d: %s", args, status, errs)
		}
		r := lastLine(t, out)
		if r.LowerBound < 11800*(1-1e-9) || r.LowerBound > 11800*(1+1e-9) || r.UpperMean < r.LowerBound*(1-1e-9) || r.UpperMean > r.LowerBound*(1+1e-9) {
			t.Errorf("bounds %v and %v, want 11800", r.LowerBound, r.UpperMean)
		}
		if r.Iterations != 4 || r.Cuts < 2 || r.Cuts > 4*2*2 || r.Ranks != 1 || len(r.CutsSHA256) != 64 || hash != "" && hash != r.CutsSHA256 {
			t.Errorf("got %+v", r)
		}
		hash = r.CutsSHA256
		if n := strings.Count(errs, "/4 "); n != 4 {
			t.Errorf("%d lines of progress, want 4:\n%s", n, errs)
		}
		if strings.Contains(errs, "\x1b") || strings.Contains(out, "\x1b") {
			t.Error("terminal codes in output that is not a terminal")
		}
	}
}

// With --quiet only the JSON line is printed, also by cohort run, which begins other lines with the rank. In a
// file it is the same.
func TestQuietRunPrintsJSONOnly(t *testing.T) {
	status, out, errs := sddpRun(t, "train", caseDir("toy"), "--quiet", "--json", "--iterations", "3")
	if status != 0 || errs != "" || strings.Count(out, "\n") != 1 {
		t.Errorf("status %d, output %q, errors %q; want one line", status, out, errs)
	}
	want := lastLine(t, out)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(cohortTool(t), "run", "--backend", "shm", "-n", "2", exe, "train", caseDir("toy"), "-q", "--json", "--iterations", "3")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	said, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(said, []byte("\n")) != 1 || lastLine(t, string(said)).CutsSHA256 != want.CutsSHA256 {
		t.Errorf("under cohort run: %v: %s", err, said)
	}
	dir := t.TempDir()
	line, page := filepath.Join(dir, "line.json"), filepath.Join(dir, "new", "page.html")
	cmd = exec.Command(cohortTool(t), "run", "--backend", "shm", "-n", "2", exe, "train", caseDir("toy"), "-q", "--json="+line, "--report", page, "--iterations", "3")
	cmd.Env = append(os.Environ(), asCommand+"=1")
	if said, err := cmd.CombinedOutput(); err != nil || len(said) > 0 {
		t.Fatalf("%v: %s", err, said)
	}
	text, err := os.ReadFile(line)
	if err != nil {
		t.Fatal(err)
	}
	if got := lastLine(t, string(text)); got.CutsSHA256 != want.CutsSHA256 || got.Ranks != 2 || strings.Count(string(text), "\n") != 1 {
		t.Errorf("the file has %s", text)
	}
	if text, err := os.ReadFile(page); err != nil || !bytes.HasPrefix(text, []byte("<!DOCTYPE html>")) {
		t.Errorf("the page: %v, %.20s", err, text)
	}
}

// The policy of another case is rejected.
func TestSimulateReadsTrainedPolicy(t *testing.T) {
	dir := t.TempDir()
	status, out, errs := sddpRun(t, "train", caseDir("brazil4"), "--iterations", "6", "--passes", "3", "--openings", "3", "--scenarios", "60", "--out", dir, "--json")
	if status != 0 {
		t.Fatalf("train: status %d: %s", status, errs)
	}
	trained := lastLine(t, out)
	for _, name := range []string{"convergence.csv", "buses.csv", "costs.csv", "cuts.csv", "plants.csv", "reservoirs.csv", "scenarios.csv", "summary.json", "policy.json"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	status, out, errs = sddpRun(t, "simulate", "--scenarios", "120", caseDir("brazil4"), "--policy", dir, "--json", "--out", filepath.Join(dir, "simulated"))
	if status != 0 {
		t.Fatalf("simulate: status %d: %s", status, errs)
	}
	simulated := lastLine(t, out)
	if simulated.CutsSHA256 != trained.CutsSHA256 || simulated.LowerBound != trained.LowerBound || simulated.Cuts != trained.Cuts {
		t.Errorf("simulate has another policy: %+v, trained %+v", simulated, trained)
	}
	// Both estimate the same expectation: twice the sum of the half widths is four standard errors.
	if d := simulated.UpperMean - trained.UpperMean; d > 2*(trained.UpperCI95+simulated.UpperCI95) || -d > 2*(trained.UpperCI95+simulated.UpperCI95) {
		t.Errorf("simulated %v ± %v, after the training %v ± %v", simulated.UpperMean, simulated.UpperCI95, trained.UpperMean, trained.UpperCI95)
	}
	status, out, errs = sddpRun(t, "train", caseDir("brazil4"), "--warm", dir, "--iterations", "1", "--passes", "3", "--openings", "3", "--scenarios", "2", "--json")
	if warm := lastLine(t, out); status != 0 || warm.LowerBound < trained.LowerBound || warm.Cuts <= trained.Cuts {
		t.Errorf("with the old policy: status %d, %+v, before %+v: %s", status, warm, trained, errs)
	}
	status, _, errs = sddpRun(t, "train", caseDir("toy"), "--warm", dir)
	if status != 1 || !strings.Contains(errs, "reservoirs") {
		t.Errorf("with the policy of another system: status %d: %s", status, errs)
	}
	status, _, errs = sddpRun(t, "simulate", caseDir("toy"), "--policy", dir)
	if status != 1 || !strings.Contains(errs, "case_sha256") || !strings.Contains(errs, `"brazil4"`) {
		t.Errorf("a policy of another case: status %d: %s", status, errs)
	}
}

func TestWrongFilesFailBeforeWork(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		args []string
		err  string
	}{
		{[]string{"train", "nowhere"}, "case nowhere: no such file"},
		{[]string{"info", "nowhere"}, "case nowhere: no such file"},
		{[]string{"train", file}, "want a folder"},
		{[]string{"train", caseDir("toy"), "--out", file}, "output folder " + file},
		{[]string{"train", caseDir("toy"), "--report", filepath.Join(file, "page.html")}, "output folder " + file},
		{[]string{"train", caseDir("toy"), "--json=" + filepath.Join(file, "line.json")}, "output folder " + file},
		{[]string{"simulate", caseDir("toy"), "--policy", file}, file + ": the file is empty"},
	} {
		status, out, errs := sddpRun(t, k.args...)
		if status != 1 || out != "" || !strings.HasPrefix(errs, "sddp") || !strings.Contains(errs, k.err) || strings.Contains(errs, "iteration") {
			t.Errorf("sddp %v: status %d, output %q, errors %q; want 1, nothing, %q, before any work", k.args, status, out, errs, k.err)
		}
	}
}

func TestInfoDescribesCase(t *testing.T) {
	status, out, errs := sddpRun(t, "info", caseDir("brazil4"), "--json")
	var facts struct {
		Thermals, Buses, Lines, Reservoirs, Stages int
		LoadMWMonth                                float64 `json:"load"`
	}
	if err := json.Unmarshal([]byte(out), &facts); status != 0 || err != nil || facts.Thermals != 126 || facts.Buses != 5 || facts.Lines != 5 || facts.Reservoirs != 4 || facts.Stages != 12 {
		t.Errorf("status %d, %v, %+v: %s", status, err, facts, errs)
	}
	status, out, _ = sddpRun(t, "info", caseDir("toy"))
	for _, want := range []string{"toy: One reservoir", "1 bus,", "2 plants, 90 MW, 20 to 80 $/MWh", "Valley"} {
		if status != 0 || !strings.Contains(out, want) {
			t.Errorf("status %d: %q is not in\n%s", status, want, out)
		}
	}
}

func TestInterruptLeavesNoFiles(t *testing.T) {
	dir := t.TempDir()
	cmd := commandOf(t, "train", caseDir("brazil4"), "--iterations", "100000", "--out", dir)
	lines := afterIteration(t, cmd, 2)
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	last := ""
	for lines.Scan() {
		last = lines.Text()
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 130 || last != "sddp: interrupted; nothing was written" {
		t.Errorf("ended with %v and %q", err, last)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the folder holds %v (%v), want nothing", left, err)
	}
}

// A signal ends a rank that waits for others to join. The other rank is this test, which accepts the
// connection and sends nothing.
func TestSignalEndsStart(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("0123456789abcdefghijklmnopqrstuv"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, k := range []struct {
		signal syscall.Signal
		status int
		said   string
	}{
		{syscall.SIGTERM, 143, "sddp: stopped by SIGTERM before all ranks had joined; nothing was written\n"},
		{syscall.SIGINT, 130, "sddp: interrupted before all ranks had joined; nothing was written\n"},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		cmd := commandOf(t, "train", caseDir("toy"))
		cmd.Env = append(cmd.Env, "COHORT_BACKEND=tcp", "COHORT_RANK=1", "COHORT_SIZE=2", "COHORT_JOB=interrupted",
			"COHORT_TCP_COORDINATOR="+l.Addr().String(), "COHORT_SECRET_FILE="+secret)
		var said bytes.Buffer
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			err := cmd.Wait()
			l.Close() // so that Accept returns if the command has failed
			ended <- err
		}()
		conn, err := l.Accept()
		if err != nil {
			t.Fatalf("the command ended by itself: %v: %s", <-ended, &said)
		}
		if err := cmd.Process.Signal(k.signal); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; cmd.ProcessState.ExitCode() != k.status || said.String() != k.said {
			t.Errorf("%v: ended with %v, and said %q, want %q", k.signal, err, said.String(), k.said)
		}
		conn.Close()
	}
}

// errDies is the panic value with which a rank dies.
var errDies = errors.New("dies for the test")

// dying is an output at which a rank dies.
type dying struct{}

func (dying) Write([]byte) (int, error) { panic(errDies) }

// When rank 0 dies before it has printed the summary, the next rank prints it.
func TestNextRankPrintsSummaryAfterLoss(t *testing.T) {
	c, err := sddp.ReadCase(caseDir("toy"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = cohort.Run(context.Background(), 3, func(world *cohort.Comm) error {
		j := &job{ctx: context.Background(), env: &hybrid.Env{}, recovery: &sddp.Recovery{}, o: &options{json: true}, out: &out}
		if world.Rank() == 0 {
			j.out = dying{}
		}
		return j.recovery.Do(j.ctx, world, func(world *cohort.Comm) error {
			j.world = world
			trained, err := sddp.Train(j.ctx, world, c, sddp.Options{Iterations: 2, Passes: 2, Recovery: j.recovery})
			if err != nil {
				return err
			}
			sim, err := sddp.Simulate(j.ctx, world, c, trained.Policy, sddp.SimulateOptions{Scenarios: 4})
			if err != nil {
				return err
			}
			return j.report(&report.Run{Case: c, Training: trained, Policy: trained.Policy, Simulation: sim}, time.Now())
		})
	})
	if !errors.Is(err, errDies) {
		t.Fatal(err)
	}
	if got := lastLine(t, out.String()); got.Ranks != 2 || got.Iterations != 2 {
		t.Errorf("printed %s", &out)
	}
}

// A policy can be simulated on a changed case, with inflows of the user's own, and a table has every scenario and
// stage. The first scenario has more water and costs less.
func TestSimulateOnChangedCaseWithGivenInflows(t *testing.T) {
	dir := t.TempDir()
	if status, _, errs := sddpRun(t, "train", caseDir("toy"), "--iterations", "4", "--passes", "2", "--scenarios", "20", "--out", dir); status != 0 {
		t.Fatalf("train: status %d: %s", status, errs)
	}
	changed := filepath.Join(dir, "changed")
	if err := os.CopyFS(changed, os.DirFS(caseDir("toy"))); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(changed, "case.json"))
	if err != nil {
		t.Fatal(err)
	}
	text = []byte(strings.Replace(string(text), `"deficit_cost": 1000`, `"deficit_cost": 1200`, 1))
	inflows := filepath.Join(dir, "inflows.csv")
	given := "scenario,stage,Lake\n1,1,60\n1,2,60\n1,3,60\n2,1,15\n2,2,15\n2,3,15\n"
	if err := errors.Join(os.WriteFile(filepath.Join(changed, "case.json"), text, 0o644), os.WriteFile(inflows, []byte(given), 0o644)); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := sddpRun(t, "simulate", changed, "--policy", dir); status != 1 || !strings.Contains(errs, "valid only for the case") {
		t.Errorf("another case without --changed: status %d: %s", status, errs)
	}
	paths := filepath.Join(dir, "paths.csv")
	status, out, errs := sddpRun(t, "simulate", changed, "--policy", dir, "--changed", "--inflows", inflows, "--paths", paths)
	if status != 0 || !strings.Contains(out, "2 scenarios with given inflows") || !strings.Contains(out, "lower bound    unknown") {
		t.Fatalf("simulate: status %d: %s\n%s", status, errs, out)
	}
	table, err := os.Open(paths)
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	rows, err := csv.NewReader(table).ReadAll()
	if err != nil || len(rows) != 7 {
		t.Fatalf("%d rows (%v), want a header and 6", len(rows), err)
	}
	inflow, cost := slices.Index(rows[0], "Lake inflow"), map[string]float64{}
	for i, row := range rows[1:] {
		if want := []string{"60", "15"}[i/3]; row[inflow] != want {
			t.Errorf("scenario %s, stage %s: the inflow is %s, want %s", row[0], row[1], row[inflow], want)
		}
		x, err := strconv.ParseFloat(row[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		cost[row[0]] += x
	}
	if cost["1"] >= cost["2"] {
		t.Errorf("with much water the cost is %v, with little %v", cost["1"], cost["2"])
	}
	if err := os.WriteFile(inflows, []byte(strings.Replace(given, "2,2,", "2,3,", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if status, _, errs := sddpRun(t, "simulate", changed, "--policy", dir, "--changed", "--inflows", inflows); status != 1 || !strings.Contains(errs, `line 6: got stage "3" of scenario "2", want 2 of 2`) {
		t.Errorf("a missing stage: status %d: %s", status, errs)
	}
}
