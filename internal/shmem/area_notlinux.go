//go:build !linux

package shmem

// CreateArea returns the reason why it cannot.
func CreateArea(string, int) (*Area, int, error) { return nil, -1, errOther }

// OpenArea returns the reason why it cannot.
func OpenArea(int, int) (*Area, error) { return nil, errOther }

// Populate touches the pages of b, which has not been written yet. It calls stop between the steps
// and ends with its error; stop may be nil.
func Populate(b []byte, stop func() error) error {
	if stop == nil {
		stop = never
	}
	return touch(b, stop)
}

// Guard does nothing.
func Guard([]byte) {}

// Space returns the reason why it cannot.
func Space(string) (int64, error) { return 0, errOther }

// Room returns -1: the free memory is not known.
func Room() (free int64, from string) { return -1, "" }
