//go:build !linux

package shmem

// CreateArea answers why it cannot.
func CreateArea(string, int) (*Area, int, error) { return nil, -1, errOther }

// OpenArea answers why it cannot.
func OpenArea(int, int) (*Area, error) { return nil, errOther }

// Populate touches the pages of b, which has been written by nobody yet. An error of
// stop, which is asked between the steps, ends it; stop may be nil.
func Populate(b []byte, stop func() error) error {
	if stop == nil {
		stop = never
	}
	return touch(b, stop)
}

// Guard does nothing.
func Guard([]byte) {}

// Space answers why it cannot.
func Space(string) (int64, error) { return 0, errOther }

// Room answers that nothing is known.
func Room() (free int64, from string) { return -1, "" }
