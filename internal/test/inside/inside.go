// Package inside waits until a goroutine is in a function, for tests of what happens to a call meanwhile.
package inside

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Wait waits until a goroutine of this process is in a function, named by a part of its line in a stack: "cohort.Recv".
// It panics after a minute.
func Wait(function string) {
	stacks := make([]byte, 1<<20)
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), function) {
			return
		}
		if time.Now().After(end) {
			panic(fmt.Sprintf("no goroutine is in %s", function))
		}
	}
}
