package cpumanager

import (
	"testing"

	"k8s.io/utils/cpuset"

	"monopod/agent/resources/numa"
	"monopod/agent/resources/numa/numatest"
)

func parse(t *testing.T, text string) cpuset.CPUSet {
	t.Helper()
	set, err := cpuset.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestChoose(t *testing.T) {
	t.Parallel()
	laptop := numatest.Shape{Sockets: 1, Nodes: 1, Cores: 4, Threads: 2}                // cores 0,4 1,5 2,6 3,7
	flat := numatest.Shape{Sockets: 1, Nodes: 1, Cores: 4, Threads: 1}                  // 0-3
	server := numatest.Shape{Sockets: 2, Nodes: 1, Cores: 4, Threads: 2}                // socket 0: 0-3,8-11; 1: 4-7,12-15
	chiplets := numatest.Shape{Sockets: 1, Nodes: 1, Cores: 8, Threads: 1, CachesOf: 4} // caches 0-3, 4-7
	split := numatest.Shape{Sockets: 2, Nodes: 2, Cores: 2, Threads: 1}                 // nodes 0-1 2-3 | 4-5 6-7
	machines := map[numatest.Shape]*numa.Machine{}
	for _, c := range []struct {
		name  string
		shape numatest.Shape
		how   PolicyOptions
		free  string
		need  int
		want  string
	}{
		{"no CPUs", laptop, PolicyOptions{}, "0-7", 0, ""},
		{"a full core before two siblings", laptop, PolicyOptions{}, "1-7", 2, "1,5"},
		{"a sibling of a used core before a full core", laptop, PolicyOptions{}, "1-7", 1, "4"},
		{"a full core and a sibling", laptop, PolicyOptions{}, "1-7", 3, "1,4-5"},
		{"only siblings left", laptop, PolicyOptions{}, "0,1,2", 2, "0-1"},
		{"all", laptop, PolicyOptions{}, "0-7", 8, "0-7"},
		{"no SMT", flat, PolicyOptions{}, "1-3", 2, "1-2"},
		{"the fuller socket that still has room", server, PolicyOptions{}, "0-3,8-11,6-7,14-15", 4, "6-7,14-15"},
		{"not split over sockets when one has room", server, PolicyOptions{}, "3,11,4-7,12-15", 4, "4-5,12-13"},
		{"a socket with full cores first", server, PolicyOptions{}, "0-2,4-7,12-15", 2, "4,12"},
		{"a whole socket, then the rest of the other", server, PolicyOptions{}, "0-15", 10, "0-4,8-12"},
		{"one node of several", split, PolicyOptions{}, "1-7", 2, "2-3"},
		{"two nodes of one socket", split, PolicyOptions{}, "1-7", 4, "4-7"},
		{"two nodes of one socket, the larger first", split, PolicyOptions{}, "1-3", 3, "1-3"},
		{"across sockets when nothing else is left", split, PolicyOptions{}, "1-3,5-7", 5, "1-3,6-7"},
		{"full cores only", laptop, PolicyOptions{FullCores: true}, "1-7", 2, "1,5"},
		{"evenly from two nodes", server, PolicyOptions{AcrossNUMA: true}, "1-7,9-15", 12, "1-6,9-14"},
		{"evenly, the rest from the larger node", server, PolicyOptions{AcrossNUMA: true}, "1-7,9-15", 10,
			"1-2,4-6,9-10,12-14"},
		{"one node if it suffices, the emptier", server, PolicyOptions{AcrossNUMA: true}, "1-7,9-15", 4, "4-5,12-13"},
		{"odd numbers are packed", server, PolicyOptions{AcrossNUMA: true}, "0-15", 9, "0-4,8-11"},
		{"threads of different cores", laptop, PolicyOptions{AcrossCores: true}, "0-7", 3, "0-2"},
		{"second threads when the cores are used up", laptop, PolicyOptions{AcrossCores: true}, "0-7", 5, "0-4"},
		{"within one cache", chiplets, PolicyOptions{Uncore: true}, "1-7", 4, "4-7"},
		{"the fuller cache", chiplets, PolicyOptions{Uncore: true}, "0,2-7", 3, "0,2-3"},
		{"by number without the option", chiplets, PolicyOptions{}, "1-7", 4, "1-4"},
		{"a whole cache and the rest", chiplets, PolicyOptions{Uncore: true}, "0-7", 6, "0-5"},
	} {
		if machines[c.shape] == nil {
			machines[c.shape] = c.shape.Machine(t)
		}
		got, err := packer{machines[c.shape], c.how}.choose(parse(t, c.free), c.need)
		if err != nil || got.String() != c.want {
			t.Errorf("%s: %d of %s: %s, want %s; error %v", c.name, c.need, c.free, got, c.want, err)
		}
	}
}

// TestChooseAlways requests every number of CPUs from every set of free CPUs. choose must return that number of free
// CPUs.
func TestChooseAlways(t *testing.T) {
	t.Parallel()
	for _, shape := range []numatest.Shape{
		{Sockets: 2, Nodes: 2, Cores: 1, Threads: 2, CachesOf: 1}, {Sockets: 2, Nodes: 1, Cores: 2, Threads: 2},
		{Sockets: 1, Nodes: 2, Cores: 4, Threads: 1, CachesOf: 2},
	} {
		m := shape.Machine(t)
		for _, how := range []PolicyOptions{{}, {AcrossNUMA: true}, {AcrossCores: true}, {Uncore: true},
			{AcrossNUMA: true, Uncore: true}} {
			for bits := range 256 {
				var free []int
				for i := range 8 {
					if bits&(1<<i) != 0 {
						free = append(free, i)
					}
				}
				set := cpuset.New(free...)
				for need := range set.Size() + 2 {
					got, err := packer{m, how}.choose(set, need)
					if need > set.Size() {
						if err == nil {
							t.Fatalf("%+v: %d of %s: %s", how, need, set, got)
						}
					} else if err != nil || got.Size() != need || !got.IsSubsetOf(set) {
						t.Fatalf("%+v: %d of %s: %s, error %v", how, need, set, got, err)
					}
				}
			}
		}
	}
}

func TestShortage(t *testing.T) {
	t.Parallel()
	p := packer{numatest.Shape{Sockets: 1, Nodes: 1, Cores: 2, Threads: 1}.Machine(t), PolicyOptions{}}
	if _, err := p.choose(parse(t, "1"), 2); err == nil ||
		err.Error() != "not enough cpus available to satisfy request: requested=2, available=1" {
		t.Error(err)
	}
}
