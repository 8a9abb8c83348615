package shmem

// touch writes a zero to every page of b, which holds nothing else.
func touch(b []byte) {
	for i := 0; i < len(b); i += PageSize {
		b[i] = 0
	}
	if len(b) > 0 {
		b[len(b)-1] = 0
	}
}
