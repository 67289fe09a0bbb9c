package flow

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"monopod/apiserver/flow/fair"
)

// Dumps returns the handlers of upstream's debug endpoints, by their paths.
func (d *Dispatcher) Dumps() map[string]http.HandlerFunc {
	const folder = "/debug/api_priority_and_fairness/"
	return map[string]http.HandlerFunc{
		folder + "dump_priority_levels": d.dumpLevels,
		folder + "dump_queues":          d.dumpQueues,
		folder + "dump_requests":        d.dumpRequests,
	}
}

// state is the state of a level.
type state struct {
	fair.State
	Executing           int
	running             []*Ticket
	utilization, demand fair.Usage
}

// states returns the current states of the levels, by their names.
func (d *Dispatcher) states() map[string]state {
	d.mu.Lock()
	levels := maps.Clone(d.levels)
	d.mu.Unlock()
	out := make(map[string]state, len(levels))
	for name, l := range levels {
		s := state{State: l.seats.State()}
		s.Executing, s.running = s.Seats, l.tickets()
		s.utilization, s.demand = l.seats.Usage()
		if l.exempt {
			s.Executing, s.Dispatched = int(l.executing.Load()), int(l.admitted.Load())
		}
		out[name] = s
	}
	return out
}

func (d *Dispatcher) dumpLevels(w http.ResponseWriter, _ *http.Request) {
	states := d.states()
	rows := [][]string{{"PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests",
		"ExecutingRequests", "DispatchedRequests", "RejectedRequests", "TimedoutRequests", "CancelledRequests"}}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		s := states[name]
		idle := len(s.Waiting) == 0 && s.Executing == 0
		rows = append(rows, []string{name, strconv.Itoa(s.Queues), strconv.FormatBool(idle), strconv.FormatBool(s.Ended),
			strconv.Itoa(len(s.Waiting)), strconv.Itoa(s.Executing), strconv.Itoa(s.Dispatched), strconv.Itoa(s.Rejected),
			strconv.Itoa(s.TimedOut), strconv.Itoa(s.Cancelled)})
	}
	printRows(w, rows)
}

// dumpQueues prints the queues that are not empty, and as queue -1 what executes: a request leaves its queue when it
// gets its seat. There is no virtual time, so no queue has one, nor an estimate of its work.
func (d *Dispatcher) dumpQueues(w http.ResponseWriter, _ *http.Request) {
	states := d.states()
	rows := [][]string{{"PriorityLevelName", "Index", "PendingRequests", "ExecutingRequests", "SeatsInUse",
		"NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum"}}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		waiting := map[int]int{}
		for _, request := range states[name].Waiting {
			waiting[request.Queue]++
		}
		const none = "0.00000000ss"
		if n := strconv.Itoa(states[name].Executing); n != "0" {
			rows = append(rows, []string{name, "-1", "0", n, n, none, "0", "0", none})
		}
		for _, index := range slices.Sorted(maps.Keys(waiting)) {
			n := strconv.Itoa(waiting[index]) // each waits for one seat
			rows = append(rows, []string{name, strconv.Itoa(index), n, "0", "0", none, n, n, none})
		}
	}
	printRows(w, rows)
}

// dumpRequests prints the requests of each level that wait, then those that are executing, with the query
// includeRequestDetails in detail.
func (d *Dispatcher) dumpRequests(w http.ResponseWriter, r *http.Request) {
	details := r.URL.Query().Get("includeRequestDetails") != ""
	// FlowDistingsher is upstream's spelling.
	header := []string{"PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher",
		"ArriveTime",
		"InitialSeats", "FinalSeats", "AdditionalLatency", "StartTime"}
	if details {
		header = append(header, "UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource")
	}
	states, rows := d.states(), [][]string{header}
	for _, name := range slices.Sorted(maps.Keys(states)) {
		for _, at := range states[name].Waiting {
			if t, ok := at.Flow.Note.(*Ticket); ok {
				rows = append(rows, t.row(name, at.Queue, at.Index, time.Time{}, details))
			}
		}
		for _, t := range states[name].running {
			rows = append(rows, t.row(name, -1, -1, t.began, details)) // it has left its queue
		}
	}
	printRows(w, rows)
}

// row is a request in the dump. Each takes one seat, and none afterwards.
func (t *Ticket) row(level string, queue, index int, began time.Time, details bool) []string {
	r := &t.request
	row := []string{level, t.schema.name, strconv.Itoa(queue), strconv.Itoa(index), t.schema.distinguisher(r),
		t.came.UTC().Format(time.RFC3339Nano),
		"1", "0", "0s", began.UTC().Format(time.RFC3339Nano)}
	if details {
		row = append(row, r.User.Name, r.Verb, r.Path, r.Namespace, r.Name, strings.TrimPrefix(r.Group+"/"+r.Version, "/"),
			r.Resource, r.Subresource)
	}
	return row
}

// printRows prints upstream's form: cells that end in commas, in columns.
func printRows(w http.ResponseWriter, rows [][]string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	table := tabwriter.NewWriter(w, 8, 0, 1, ' ', 0)
	defer table.Flush()
	for _, row := range rows {
		for i := range row {
			row[i] = strings.Map(func(r rune) rune {
				if r < ' ' {
					return ' ' // so that a client's text cannot add rows or cells
				}
				return r
			}, row[i])
		}
		fmt.Fprintln(table, strings.Join(row, ",\t"))
	}
}
