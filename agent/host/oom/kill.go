// Package oom reads OOM kills from the kernel's log. The runtime also reports them, but containerd 1.6 on cgroup v1
// misses some.
package oom

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Kill is one OOM kill of a process.
type Kill struct {
	Process string
	PID     int
	Cgroup  string    // of the process; empty if unknown
	System  bool      // the whole machine was out of memory, not a cgroup at its limit
	At      time.Time // time at which the record was read
}

// String returns the text of an event SystemOOM.
func (k Kill) String() string {
	return fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID)
}

// parser parses the kernel's records one by one. A kill takes several records: the limit that was reached, then the
// victim. The kernel omits the former if more than ten processes die within 5 s.
type parser struct {
	reported int    // the process whose kill was last reported
	cgroup   string // of the next victim, from kernels before 5.0
}

// line parses a record. ok means that it is the first record about a victim.
func (p *parser) line(record string) (k Kill, ok bool) {
	_, text, _ := strings.Cut(record, ";")
	text, _, _ = strings.Cut(text, "\n")
	if _, rest, found := strings.Cut(text, "oom-kill:constraint="); found {
		return p.summary(rest)
	}
	if rest, found := strings.CutPrefix(text, "Task in "); found {
		if cgroup, _, found := strings.Cut(rest, " killed as a result of limit of "); found {
			p.cgroup = cgroup
		}
		return Kill{}, false
	}
	return p.victim(text)
}

// summary parses the complete record of kernels from 5.0 on:
// CONSTRAINT_MEMCG,nodemask=…,oom_memcg=/a,task_memcg=/a/b,task=web,pid=7,uid=0.
func (p *parser) summary(text string) (k Kill, ok bool) {
	constraint, rest, _ := strings.Cut(text, ",")
	k.System = constraint == "CONSTRAINT_NONE"
	_, rest, _ = strings.Cut(rest, "task_memcg=")
	k.Cgroup, rest, ok = strings.Cut(rest, ",task=")
	if !ok {
		return Kill{}, false
	}
	at := strings.LastIndex(rest, ",pid=") // a name may hold anything
	if at < 0 {
		return Kill{}, false
	}
	pid, _, _ := strings.Cut(rest[at+len(",pid="):], ",")
	var err error
	if k.PID, err = strconv.Atoi(pid); err != nil {
		return Kill{}, false
	}
	k.Process, p.reported, p.cgroup = rest[:at], k.PID, ""
	return k, true
}

// victim parses the record that every kill has.
func (p *parser) victim(text string) (k Kill, ok bool) {
	if !strings.Contains(text, "Killed process ") {
		return Kill{}, false
	}
	m := regexp.MustCompile(`Killed process (\d+) \((.*?)\)`).FindStringSubmatch(text)
	if m == nil {
		return Kill{}, false
	}
	pid, err := strconv.Atoi(m[1])
	if err != nil || pid == p.reported {
		p.reported = 0
		return Kill{}, false
	}
	k = Kill{PID: pid, Process: m[2], Cgroup: p.cgroup}
	p.cgroup = ""
	return k, true
}
