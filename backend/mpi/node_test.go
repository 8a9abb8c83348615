//go:build linux

package mpi

import "testing"

func TestOversubscribed(t *testing.T) {
	for _, c := range []struct {
		name, value, online string
		want                bool
	}{
		{"OMPI_COMM_WORLD_LOCAL_SIZE", "4", "0-1\n", true},
		{"OMPI_COMM_WORLD_LOCAL_SIZE", "2", "0-1\n", false},
		{"MPI_LOCALNRANKS", "5", "0-1,3,6-7\n", false},
		{"MPI_LOCALNRANKS", "6", "0-1,3,6-7\n", true},
		{"MPI_LOCALNRANKS", "6", "", false},
		{"MPI_LOCALNRANKS", "6", "what", false},
		{"MPI_LOCALNRANKS", "many", "0\n", false},
		{"UNRELATED", "6", "0\n", false},
	} {
		env := func(name string) (string, bool) { return c.value, name == c.name }
		if got := oversubscribed(env, c.online); got != c.want {
			t.Errorf("%s=%s with processors %q: %v, want %v", c.name, c.value, c.online, got, c.want)
		}
	}
	if countCPUs(onlineCPUs()) < 1 {
		t.Errorf("this machine's processors: %q", onlineCPUs())
	}
}
