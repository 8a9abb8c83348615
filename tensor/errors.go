package tensor

import "fmt"

// fault returns an error that is one of cohort's.
func fault(sentinel error, format string, facts ...any) error {
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, facts...), sentinel)
}

// failed says which function of this package, in lower case, has failed.
func failed(op string, err error) error { return fmt.Errorf("tensor: %s: %w", op, err) }
