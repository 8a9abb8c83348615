package job

import (
	"fmt"
	"time"
)

// reportLimit is the time for a failed rank's last output to come before the message about it.
const reportLimit = 200 * time.Millisecond

// Log prints the launcher's messages in order, each after the last output of the rank that it is about.
type Log struct {
	messages chan message
	done     chan struct{}
}

type message struct {
	text  string
	after <-chan struct{} // the rank's output has been passed on
	by    time.Time       // the message does not wait longer for it
}

// NewLog returns a log that calls write for each message.
func NewLog(ranks int, write func(text string)) *Log {
	l := &Log{make(chan message, ranks+64), make(chan struct{})}
	go func() {
		defer close(l.done)
		for m := range l.messages {
			if m.after != nil {
				select {
				case <-m.after:
				case <-time.After(time.Until(m.by)):
				}
			}
			write(m.text)
		}
	}()
	return l
}

// Say queues a message. It does not block: the end of a job must not depend on whether its messages are read.
func (l *Log) Say(text string, after <-chan struct{}) {
	select {
	case l.messages <- message{text, after, time.Now().Add(reportLimit)}:
	default: // the queue is full: earlier messages have not been read either
	}
}

// Close returns a channel that is closed once all messages have been written. Nothing is said after it.
func (l *Log) Close() <-chan struct{} {
	close(l.messages)
	return l.done
}

// Seconds formats a duration for messages.
func Seconds(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.3f s", d.Seconds())
	case d < 100*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// Count returns a number and a noun: "1 rank", "2 ranks".
func Count(n int, noun string) string { return fmt.Sprintf("%d %s", n, Plural(n, noun)) }

// Plural returns the noun that stands after a number.
func Plural(n int, noun string) string {
	if n == 1 {
		return noun
	}
	return noun + "s"
}
