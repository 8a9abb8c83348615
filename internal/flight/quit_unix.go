//go:build unix

package flight

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// watched are the recorders of this process that SIGQUIT dumps.
var watched struct {
	mu   sync.Mutex
	all  map[*Recorder]bool
	quit chan os.Signal // nil while there are none
}

// watch makes SIGQUIT dump r.
func watch(r *Recorder) {
	w := &watched
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.quit == nil {
		w.all = make(map[*Recorder]bool)
		w.quit = make(chan os.Signal, 1)
		signal.Notify(w.quit, syscall.SIGQUIT)
		go await(w.quit)
	}
	w.all[r] = true
}

// unwatch undoes watch.
func unwatch(r *Recorder) {
	w := &watched
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, r)
	if len(w.all) == 0 && w.quit != nil {
		signal.Stop(w.quit)
		close(w.quit)
		w.quit = nil
	}
}

// await dumps all recorders on SIGQUIT and then lets the signal do what it does without them: by
// default the Go runtime prints the stacks of all goroutines and ends the process.
func await(quit chan os.Signal) {
	if _, ok := <-quit; !ok {
		return
	}
	w := &watched
	w.mu.Lock()
	defer w.mu.Unlock()
	for r := range w.all {
		r.Note(Quit, "")
	}
	signal.Stop(quit)
	if w.quit == quit {
		w.quit, w.all = nil, nil
	}
	_ = syscall.Kill(os.Getpid(), syscall.SIGQUIT)
}
