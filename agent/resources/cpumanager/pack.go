package cpumanager

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"k8s.io/utils/cpuset"

	"monopod/agent/resources/numa"
	"monopod/agent/resources/topology"
)

// packer chooses CPUs that are close together: on one NUMA node if possible, otherwise on one socket, and in whole
// cores, so that containers share as few cores and caches as possible. Of equal choices it takes the lower numbers.
type packer struct {
	machine *numa.Machine
	PolicyOptions
}

// shortage is the error for too few CPUs, with upstream's text.
func shortage(need, free int) error {
	return fmt.Errorf("not enough cpus available to satisfy request: requested=%d, available=%d", need, free)
}

// choose chooses the needed number of the free CPUs.
func (p packer) choose(free cpuset.CPUSet, need int) (cpuset.CPUSet, error) {
	list := p.eligible(free)
	if len(list) < need {
		return cpuset.CPUSet{}, shortage(need, len(list))
	}
	if p.AcrossNUMA && need%p.machine.ThreadsPerCore() == 0 {
		if out := p.spread(list, need); out != nil {
			return ids(out), nil
		}
	}
	return ids(p.take(list, need, p.levels())), nil
}

// eligible returns the free CPUs that may be allocated: with FullCores only those of completely free cores.
func (p packer) eligible(free cpuset.CPUSet) []numa.CPU {
	var out []numa.CPU
	for _, c := range p.machine.CPUs {
		if free.Contains(c.ID) && (!p.FullCores || p.core(c.Core).IsSubsetOf(free)) {
			out = append(out, c)
		}
	}
	return out
}

func (p packer) core(id int) cpuset.CPUSet {
	return p.machine.Where(func(c numa.CPU) bool { return c.Core == id })
}

func ids(list []numa.CPU) cpuset.CPUSet {
	out := make([]int, 0, len(list))
	for _, c := range list {
		out = append(out, c.ID)
	}
	return cpuset.New(out...)
}

// level returns the group of a CPU at one level of the topology.
type level func(numa.CPU) int

func byCore(c numa.CPU) int   { return c.Core }
func byCache(c numa.CPU) int  { return c.Cache }
func byNode(c numa.CPU) int   { return c.Node }
func bySocket(c numa.CPU) int { return c.Socket }

// levels returns the levels to stay within, smallest first.
func (p packer) levels() []level {
	out := []level{byNode, bySocket}
	if len(groups(p.machine.CPUs, bySocket)) > len(groups(p.machine.CPUs, byNode)) {
		out = []level{bySocket, byNode} // a node of several sockets
	}
	if p.Uncore {
		out = append([]level{byCache}, out...)
	}
	return out
}

// groups splits a list by level, in numerical order.
func groups(list []numa.CPU, by level) [][]numa.CPU {
	parts := map[int][]numa.CPU{}
	for _, c := range list {
		parts[by(c)] = append(parts[by(c)], c)
	}
	var out [][]numa.CPU
	for _, id := range slices.Sorted(maps.Keys(parts)) {
		out = append(out, parts[id])
	}
	return out
}

// take chooses the needed number of CPUs from the smallest group that is large enough. If there is none, it takes the
// whole largest group and repeats for the rest.
func (p packer) take(list []numa.CPU, need int, levels []level) []numa.CPU {
	if need == 0 {
		return nil
	}
	for i, by := range levels {
		fits := p.smallestFit(groups(list, by), need)
		switch {
		case fits == nil:
		case i == 0:
			return p.cores(fits, need)
		default:
			return p.largestFirst(fits, need, levels[:i])
		}
	}
	return p.largestFirst(list, need, levels)
}

// largestFirst takes the largest group of the widest level if all of it is needed.
func (p packer) largestFirst(list []numa.CPU, need int, levels []level) []numa.CPU {
	all := groups(list, levels[len(levels)-1])
	most := slices.MaxFunc(all, func(a, b []numa.CPU) int { return len(a) - len(b) })
	if len(most) > need || len(all) == 1 && len(levels) == 1 {
		return p.cores(list, need)
	}
	if len(all) == 1 {
		return p.take(list, need, levels[:len(levels)-1])
	}
	rest := slices.DeleteFunc(slices.Clone(list), func(c numa.CPU) bool { return slices.Contains(most, c) })
	return append(slices.Clone(most), p.take(rest, need-len(most), levels)...)
}

// smallestFit returns the smallest group that is large enough, preferably with enough whole cores; nil: there is none.
func (p packer) smallestFit(all [][]numa.CPU, need int) []numa.CPU {
	threads := p.machine.ThreadsPerCore()
	var best []numa.CPU
	var bestBroken bool
	for _, g := range all {
		if len(g) < need {
			continue
		}
		broken := p.inWholeCores(g) < need/threads*threads
		if best == nil || bestBroken && !broken || bestBroken == broken && len(g) < len(best) {
			best, bestBroken = g, broken
		}
	}
	return best
}

// inWholeCores returns the number of CPUs whose core is completely free.
func (p packer) inWholeCores(list []numa.CPU) int {
	n := 0
	for _, core := range groups(list, byCore) {
		if p.whole(core) {
			n += len(core)
		}
	}
	return n
}

func (p packer) whole(core []numa.CPU) bool { return len(core) == p.core(core[0].Core).Size() }

// cores takes whole cores, then single threads of partly used cores. With AcrossCores it takes one thread of each core
// before it takes second threads.
func (p packer) cores(list []numa.CPU, need int) []numa.CPU {
	all := groups(list, byCore)
	if p.AcrossCores {
		return threadwise(all, need)
	}
	var out, rest []numa.CPU
	slices.SortStableFunc(all, func(a, b []numa.CPU) int { return cmp.Compare(len(a), len(b)) })
	for _, core := range all {
		if p.whole(core) && len(core) <= need-len(out) {
			out = append(out, core...)
		} else {
			rest = append(rest, core...)
		}
	}
	return append(out, rest[:need-len(out)]...)
}

// threadwise takes the first thread of each core, then the second of each.
func threadwise(cores [][]numa.CPU, need int) []numa.CPU {
	slices.SortStableFunc(cores, func(a, b []numa.CPU) int { return cmp.Compare(len(b), len(a)) })
	var out []numa.CPU
	for thread := 0; len(out) < need; thread++ {
		for _, core := range cores {
			if thread < len(core) && len(out) < need {
				out = append(out, core[thread])
			}
		}
	}
	return out
}

// spread takes the same number of CPUs, plus or minus a core, from each of as few NUMA nodes as possible, so that the
// remaining free CPUs are spread most evenly. nil: that is impossible.
func (p packer) spread(list []numa.CPU, need int) []numa.CPU {
	nodes := groups(list, byNode)
	if len(nodes) > maxSpreadNodes || need == 0 {
		return nil
	}
	var best []numa.CPU
	bestSize, bestUneven := len(nodes)+1, 0
	for set := topology.Nodes(1); set < 1<<len(nodes); set++ {
		size := set.Count()
		if size > bestSize {
			continue
		}
		shares := p.shares(nodes, set, need)
		if shares == nil {
			continue
		}
		uneven := unevenness(nodes, shares)
		if size < bestSize || uneven < bestUneven {
			bestSize, bestUneven, best = size, uneven, p.distribute(nodes, shares)
		}
	}
	return best
}

// maxSpreadNodes is the number of NUMA nodes up to which spread tries all subsets.
const maxSpreadNodes = 12

// shares returns how many CPUs each node of the set contributes. The remainder comes, core by core, from the nodes with
// the most free CPUs. nil: a node has too few.
func (p packer) shares(nodes [][]numa.CPU, set topology.Nodes, need int) []int {
	threads, members := p.machine.ThreadsPerCore(), set.IDs()
	each := need / len(members) / threads * threads
	out := make([]int, len(nodes))
	for _, i := range members {
		out[i] = each
	}
	slices.SortStableFunc(members, func(a, b int) int { return cmp.Compare(len(nodes[b]), len(nodes[a])) })
	for i, rest := 0, need-each*len(members); rest > 0; i, rest = i+1, rest-threads {
		out[members[i%len(members)]] += threads
	}
	for i, n := range out {
		if n > len(nodes[i]) {
			return nil
		}
	}
	return out
}

// unevenness returns the sum of the squares of the remaining free CPUs, which is least for an even distribution.
func unevenness(nodes [][]numa.CPU, shares []int) int {
	sum := 0
	for i, n := range nodes {
		sum += (len(n) - shares[i]) * (len(n) - shares[i])
	}
	return sum
}

func (p packer) distribute(nodes [][]numa.CPU, shares []int) []numa.CPU {
	levels := []level{byNode}
	if p.Uncore {
		levels = []level{byCache, byNode}
	}
	var out []numa.CPU
	for i, n := range shares {
		out = append(out, p.take(nodes[i], n, levels)...)
	}
	return out
}
