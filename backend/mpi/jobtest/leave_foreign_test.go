//go:build cgo && linux

package jobtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ebitengine/purego"

	"github.com/cohort-hpc/cohort"
)

// countMessages is C code that makes communicators, counts the messages that are there already, and ends the use of MPI.
const countMessages = `
int count_messages(void) {
	MPI_Comm c[4];
	int found = 0;
	for (int i = 0; i < 4; i++) MPI_Comm_dup(MPI_COMM_WORLD, &c[i]);
	MPI_Barrier(MPI_COMM_WORLD);
	for (int n = 0; n < 1000; n++)
		for (int i = 0; i < 4; i++) {
			int there = 0;
			MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, c[i], &there, MPI_STATUS_IGNORE);
			found += there;
		}
	MPI_Finalize();
	return found;
}
`

// TestForeignCommunicatorsGetNoMessagesOfTheJob checks that messages that nobody has received when the job ends are not
// there in communicators that other code makes afterwards. A library gives these the context ids of those that are free.
func TestForeignCommunicatorsGetNoMessagesOfTheJob(t *testing.T) {
	program("leaves a message", func() error {
		lib, err := purego.Dlopen(os.Getenv("LD_PRELOAD"), purego.RTLD_NOW)
		if err != nil {
			return err
		}
		var count func() int32
		purego.RegisterLibFunc(&count, lib, "count_messages")
		w, err := cohort.Init(background, nil)
		if err != nil {
			return err
		}
		if w.Rank() == 1 { // its claim stays at rank 0
			ctx, cancel := context.WithTimeout(background, 20*time.Millisecond)
			_, err = w.WithContext(ctx).CreateGroup(w.Group(), 0)
			cancel()
			if !errors.Is(err, cohort.ErrTimeout) {
				return fmt.Errorf("CreateGroup: got %w, want ErrTimeout", err)
			}
		}
		if err := errors.Join(w.Barrier(), w.Close()); err != nil {
			return err
		}
		if n := count(); n > 0 {
			return fmt.Errorf("rank %d found messages on new communicators %d times", w.Rank(), n)
		}
		return nil
	})
	inLibraries(t, func(t *testing.T, name string) {
		tool := compiledC(t, mpicc(t, name), foreignStart+countMessages, "foreign.so", "-shared", "-fPIC")
		start(t, name, 2, "leaves a message", "LD_PRELOAD="+tool).must(t)
	})
}
