package soft_test

import (
	"fmt"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/acceltest"
	"github.com/cohort-hpc/cohort/internal/test/soft"
)

func TestSoftDevicesPassSuite(t *testing.T) {
	for i, c := range []soft.Config{
		{Memory: 32 << 20},
		{Devices: 2, Memory: 32 << 20},
		{HostCanRead: true, Memory: 32 << 20},
		{Lazy: true, Seed: 2, Memory: 32 << 20, HostCanRead: true},
		{Lazy: true, Seed: 1, Memory: 32 << 20},
	} {
		if testing.Short() && i%2 == 0 {
			continue // the others differ in the same settings; make test-all runs all
		}
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			d := soft.New(c)
			acceltest.Test(t, d)
			if err := d.Left(); err != nil {
				t.Error(err)
			}
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
