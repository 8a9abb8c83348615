//go:build cgo

package libmpi

import "testing"

// TestDeviceOfReadsVersionTexts reads the starts of version texts: of MPICH 4.0.2 and Open MPI 4.1.4 as in Debian
// 12, of others as their sources have them.
func TestDeviceOfReadsVersionTexts(t *testing.T) {
	for _, c := range []struct{ text, device string }{
		{"MPICH Version:\t4.0.2\nMPICH Release date:\tThu Apr  7 12:34:45 CDT 2022\nMPICH Device:\tch4:ucx\nMPICH configure:\t--build=x86_64-linux-gnu", "ch4:ucx"},
		{"MPICH Version:      3.4.1\nMPICH Device:       ch3:nemesis\n", "ch3:nemesis"},
		{"MVAPICH2 Version      :\t2.3.7\nMVAPICH2 Device       :\tch3:mrail\n", "ch3:mrail"},
		{"Open MPI v4.1.4, package: Debian OpenMPI, ident: 4.1.4, repo rev: v4.1.4, May 26, 2022\x00", ""},
		{"Intel(R) MPI Library 2021.11 for Linux* OS\n", ""},
		{"MPICH Device:\x00", ""},
		{"", ""},
	} {
		if got := deviceOf(c.text); got != c.device {
			t.Errorf("%q: device %q, want %q", c.text, got, c.device)
		}
	}
}
