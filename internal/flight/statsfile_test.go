package flight

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Rank 0 waits two seconds for the others, and writes what there is: also if their folder has gone.
func TestWriteStatsWaitsTwoSeconds(t *testing.T) {
	own := New("", Origin{Backend: "test", Size: 2, Count: true})
	own.End(own.Begin(What(Send, 0, 0, 1), 8, 0, 0), nil)
	own.Close()
	var b bytes.Buffer
	if err := own.Write(&b); err != nil {
		t.Fatal(err)
	}
	mine, err := Decode(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "stats.txt")
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		if err := writeStats(file, RanksFolder(file), []*Dump{mine}); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d != 2*time.Second {
			t.Errorf("it waited %v, want 2s", d)
		}
	})
	text, err := os.ReadFile(file)
	if err != nil || !bytes.Contains(text, []byte("rank 1 left no counts")) || !strings.Contains(string(text), "Send") {
		t.Errorf("the table: %v\n%s", err, text)
	}
}
