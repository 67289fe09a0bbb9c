package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// watchOOM tells of processes that the kernel killed because the whole machine was
// out of memory, as an event SystemOOM of the node. Those killed because a
// container reached its limit are the containers' affair.
func (a *Agent) watchOOM(ctx context.Context) {
	if a.cfg.KernelLog == "" {
		return
	}
	if err := a.readKernelLog(ctx); err != nil && ctx.Err() == nil {
		a.log.Warn("the kernel's log cannot be read: there will be no events SystemOOM", zap.String("file", a.cfg.KernelLog), zap.Error(err))
	}
}

// readKernelLog reads what the kernel says from now on. A read without news sleeps
// in the poller, at no cost.
func (a *Agent) readKernelLog(ctx context.Context) error {
	f, err := os.OpenFile(a.cfg.KernelLog, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekEnd); err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { f.Close() })()
	var oom oomParser
	buf := make([]byte, maxRecord)
	for {
		n, err := f.Read(buf)
		switch {
		case errors.Is(err, unix.EPIPE): // some records were overwritten before they could be read
			continue
		case err != nil:
			return err
		}
		if victim, ok := oom.line(string(buf[:n])); ok {
			a.Recorder.Reference(a.node.reference(), corev1.EventTypeWarning, "SystemOOM", "%s", victim)
		}
	}
}

// maxRecord is the longest record that /dev/kmsg gives out.
const maxRecord = 8192

// oomParser reads the kernel's records one by one: it says first whose limit was
// reached, then whom it killed.
type oomParser struct{ system bool }

// line takes a record; ok says that it names a victim of the whole machine.
func (p *oomParser) line(record string) (victim string, ok bool) {
	_, text, _ := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	if _, rest, found := strings.Cut(text, "oom-kill:constraint="); found {
		p.system = strings.HasPrefix(rest, "CONSTRAINT_NONE,")
		return "", false
	}
	if !p.system || !strings.HasPrefix(text, "Out of memory") {
		return "", false
	}
	p.system = false
	m := regexp.MustCompile(`Killed process (\d+) \((.*?)\)`).FindStringSubmatch(text)
	if m == nil {
		return "", false
	}
	return fmt.Sprintf("System OOM encountered, victim process: %s, pid: %s", m[2], m[1]), true
}
