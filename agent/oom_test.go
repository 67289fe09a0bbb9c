package agent

import "testing"

func TestOnlyVictimsOfTheWholeMachineAreTold(t *testing.T) {
	t.Parallel()
	const (
		system = "4,1,10,-;oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/a,task=stress,pid=42,uid=0\n SUBSYSTEM=x"
		memcg  = "6,2,20,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,task=web,pid=7,uid=0\n"
		killed = "3,3,30,-;Out of memory: Killed process 42 (stress) total-vm:1kB, anon-rss:1kB\n"
		limit  = "3,4,40,-;Memory cgroup out of memory: Killed process 7 (web) total-vm:1kB\n"
	)
	for _, c := range []struct {
		records []string
		want    string
	}{
		{[]string{system, killed}, "System OOM encountered, victim process: stress, pid: 42"},
		{[]string{system, "6,9,9,-;eth0: link up\n", killed}, "System OOM encountered, victim process: stress, pid: 42"},
		{[]string{memcg, limit}, ""},
		{[]string{system, memcg, limit, killed}, ""},
		{[]string{killed, "", ";", "no record"}, ""},
	} {
		var p oomParser
		got := ""
		for _, r := range c.records {
			if victim, ok := p.line(r); ok {
				got += victim
			}
		}
		if got != c.want {
			t.Errorf("%q: %q", c.records, got)
		}
	}
}
