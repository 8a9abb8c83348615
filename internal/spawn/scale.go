package spawn

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// scaleLimit is for the answer of a job's launcher.
const scaleLimit = 10 * time.Second

// errEnds is why a job does nothing more.
var errEnds = errors.New("the job is ending")

// scaled is the launcher's answer to Scale.
type scaled struct{ Error string }

// Scale asks a job with generations for another number of ranks. folder is its Config.Folder.
func Scale(folder string, ranks int) error {
	c, err := net.Dial("unix", filepath.Join(folder, Socket))
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(scaleLimit))
	if _, err := fmt.Fprintf(c, "scale %d\n", ranks); err != nil {
		return err
	}
	var a scaled
	if err := json.NewDecoder(c).Decode(&a); errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("its launcher gives no answer for %v, and may give the job another size later", scaleLimit)
	} else if err != nil {
		return fmt.Errorf("its launcher gives no answer, because it ends: %w", err)
	}
	if a.Error != "" {
		return errors.New(a.Error)
	}
	return nil
}

// answerScale answers a line of Scale. It reports false for another line.
func answerScale(c net.Conn, text string, scale func(ranks int) error) bool {
	n, ok := strings.CutPrefix(text, "scale ")
	if !ok {
		return false
	}
	ranks, err := strconv.Atoi(n)
	if err != nil {
		return true
	}
	var a scaled
	if err := scale(ranks); err != nil {
		a.Error = err.Error()
	}
	_ = json.NewEncoder(c).Encode(a)
	return true
}
