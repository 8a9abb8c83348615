package exact

import (
	"os"
	"testing"

	"github.com/cohort-hpc/cohort/internal/test/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Run(m)) }
