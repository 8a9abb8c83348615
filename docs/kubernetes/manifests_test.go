// Package kubernetes checks the manifests of docs/kubernetes.md against the types of the Kubernetes API, and that the
// image of the Containerfile needs nothing but the program.
package kubernetes

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// jobSet has the fields of jobset.x-k8s.io/v1alpha2 that jobset.yaml uses. Its module would bring the controller.
type jobSet struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Network struct {
			EnableDNSHostnames       bool   `json:"enableDNSHostnames"`
			Subdomain                string `json:"subdomain"`
			PublishNotReadyAddresses bool   `json:"publishNotReadyAddresses"`
		} `json:"network"`
		FailurePolicy struct {
			MaxRestarts int `json:"maxRestarts"`
		} `json:"failurePolicy"`
		ReplicatedJobs []struct {
			Name     string                `json:"name"`
			Replicas int                   `json:"replicas"`
			Template batch.JobTemplateSpec `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
}

// decode reads the documents of a file, which must have no fields that the types lack.
func decode(t *testing.T, file string, into ...any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	documents := bytes.Split(text, []byte("\n---\n"))
	if len(documents) != len(into) {
		t.Fatalf("%s has %d documents, want %d", file, len(documents), len(into))
	}
	for i, d := range documents {
		if err := yaml.UnmarshalStrict(d, into[i]); err != nil {
			t.Errorf("%s, document %d: %v", file, i, err)
		}
	}
}

func TestJobManifestDecodes(t *testing.T) {
	var service core.Service
	var job batch.Job
	decode(t, "job.yaml", &service, &job)
	if service.APIVersion+service.Kind != "v1Service" || job.APIVersion+job.Kind != "batch/v1Job" {
		t.Errorf("%s %s, %s %s", service.APIVersion, service.Kind, job.APIVersion, job.Kind)
	}
	if service.Spec.ClusterIP != core.ClusterIPNone || service.Spec.Selector[batch.JobNameLabel] != job.Name ||
		job.Spec.Template.Spec.Subdomain != service.Name {
		t.Error("the service is not the headless service of the Job's pods")
	}
	checkJob(t, &job.Spec, map[string]string{"COHORT_JOB": batch.ControllerUidLabel})
	again := false
	for _, r := range job.Spec.PodFailurePolicy.Rules {
		again = again || r.Action == batch.PodFailurePolicyActionIgnore && r.OnExitCodes != nil && len(r.OnExitCodes.Values) == 1 && r.OnExitCodes.Values[0] == 75
	}
	if !again {
		t.Error("a rank that is not to blame counts as a failure")
	}
}

func TestJobSetManifest(t *testing.T) {
	var set jobSet
	decode(t, "jobset.yaml", &set)
	if set.APIVersion+set.Kind != "jobset.x-k8s.io/v1alpha2JobSet" || !set.Spec.Network.EnableDNSHostnames ||
		len(set.Spec.ReplicatedJobs) != 1 || set.Spec.ReplicatedJobs[0].Replicas != 1 {
		t.Errorf("%+v", set)
	}
	checkJob(t, &set.Spec.ReplicatedJobs[0].Template.Spec, map[string]string{
		"COHORT_JOB": "jobset.sigs.k8s.io/jobset-uid", "COHORT_REPLICAS": "jobset.sigs.k8s.io/replicatedjob-replicas"})
}

// checkJob checks what the text of the page says of a Job. Some variables have the values of labels.
func checkJob(t *testing.T, job *batch.JobSpec, labels map[string]string) {
	t.Helper()
	if *job.CompletionMode != batch.IndexedCompletion || *job.Completions != *job.Parallelism {
		t.Error("not all ranks run at the same time")
	}
	pod := job.Template.Spec
	env := map[string]string{}
	for _, v := range pod.Containers[0].Env {
		if env[v.Name] = v.Value; v.ValueFrom != nil {
			env[v.Name] = v.ValueFrom.FieldRef.FieldPath
		}
	}
	if env["COHORT_SIZE"] != strconv.Itoa(int(*job.Completions)) {
		t.Errorf("COHORT_SIZE is %s of %d completions", env["COHORT_SIZE"], *job.Completions)
	}
	for name, want := range labels {
		if env[name] != "metadata.labels['"+want+"']" {
			t.Errorf("%s is %q, want the label %s", name, env[name], want)
		}
	}
	if m := pod.Containers[0].VolumeMounts[0]; filepath.Dir(env["COHORT_SECRET_FILE"]) != m.MountPath || !m.ReadOnly ||
		m.Name != pod.Volumes[0].Name || pod.Volumes[0].Secret == nil {
		t.Error("the file of the secret is not a mounted Secret")
	}
	if *pod.AutomountServiceAccountToken || pod.RestartPolicy != core.RestartPolicyNever {
		t.Error("the pod has rights on the API, or starts containers again")
	}
}

// The program of an image is static and small, when built as the Containerfile builds it.
func TestProgramOfImageIsStaticAndSmall(t *testing.T) {
	text, err := os.ReadFile("Containerfile")
	if err != nil {
		t.Fatal(err)
	}
	const build = `CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" `
	if s := string(text); !strings.Contains(s, build) || !strings.Contains(s, "\nFROM scratch\n") {
		t.Fatalf("the Containerfile does not build with %q from scratch", build)
	}
	path := filepath.Join(t.TempDir(), "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "./examples/pi")
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() >= 15_000_000 {
		t.Errorf("%d bytes, %v, want less than 15 MB", info.Size(), err)
	}
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	libraries, _ := f.ImportedLibraries() // an error: it has no table of them
	if len(libraries) > 0 {
		t.Errorf("it needs %v", libraries)
	}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("it needs a loader")
		}
	}
}
