package spawn

import "testing"

// TestLaunchPassesBytesThatAreNotText has arguments and a variable that are no text: a rank gets them as they are.
func TestLaunchPassesBytesThatAreNotText(t *testing.T) {
	const odd = "\xff\xfe \u00e4 \xc3("
	cfg := launched(t, 1, "plain", "sh")
	cfg.Path = "/bin/sh"
	cfg.Args = []string{"-c", `printf '%s|%s|%s' "$0" "$1" "$ODD"`, odd, ""}
	cfg.Launch.Env = append(cfg.Launch.Env, "ODD="+odd)
	r := wait(t, start(t, cfg))
	if said := cfg.Stdout.(*buffer).String(); r.Status != 0 || said != "[0] "+odd+"||"+odd+"\n" {
		t.Errorf("%+v: %q; stderr:\n%s", r, said, cfg.Stderr)
	}
}
