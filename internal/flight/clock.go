package flight

import (
	"os"
	"strings"
	"time"
)

// The clock of the records counts ticks of the processor's own counter where that runs evenly and
// the same on all processors, and nanoseconds elsewhere. The length of a tick is found by comparing
// ticks with the time at the start of the process and later.
var (
	epoch      = time.Now()
	epochTicks = ticks()
	counting   = steady()
)

// clockSource names the counter that the kernel uses. A counter that the kernel has found unreliable is not used here.
const clockSource = "/sys/devices/system/clocksource/clocksource0/current_clocksource"

// steady reports whether ticks counts evenly, on all processors alike.
func steady() bool {
	if !hasTicks {
		return false
	}
	b, err := os.ReadFile(clockSource)
	if err != nil {
		return true // not Linux, or hidden; all processors of today have such a counter
	}
	switch strings.TrimSpace(string(b)) {
	case "hpet", "acpi_pm", "jiffies", "refined-jiffies", "pit":
		return false
	}
	return true
}

// now is the clock of the records. It is never 0, which stands for no time.
func now() uint64 {
	if counting {
		return ticks() - epochTicks + 1
	}
	return uint64(time.Since(epoch)) + 1
}

// shortest is the minimum time over which ticks are compared with the clock.
const shortest = 2 * time.Millisecond

// rate returns how many ticks of now there are in a second.
func rate() float64 {
	if !counting {
		return 1e9
	}
	for {
		// The goroutine may lose its processor between the two readings. The longer the process runs,
		// the smaller is that error.
		d := time.Since(epoch)
		n := now()
		if d >= shortest {
			return float64(n) / d.Seconds()
		}
		time.Sleep(shortest - d)
	}
}
