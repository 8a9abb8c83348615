package window

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/cohort-hpc/cohort/backend"
	"github.com/cohort-hpc/cohort/internal/shmem"
)

// Share makes memory of size bytes that ranks of one node, which are processes, have in common. Rank 0
// keeps its descriptor open until the others have opened it through /proc.
func Share(rank, size int, publish backend.Publish) (backend.Memory, error) {
	fd := -1
	defer func() { unix.Close(fd) }()
	return ShareBy(rank, publish, func() (*Memory, string, error) {
		mem, made, err := shmem.CreateArea("cohort-window", size)
		fd = made
		m, err := memory(mem, err)
		return m, fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), err
	}, func(name string) (*Memory, error) { return memory(shmem.OpenArea(name, size)) })
}
