package main

import (
	"context"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory is a Prometheus storage in memory for a few samples.
type memory struct {
	series map[string]*series
}

type series struct {
	labels  labels.Labels
	samples []chunks.Sample
}

// sample is a value with a timestamp in ms.
type sample struct {
	t int64
	f float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.f }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// add appends a sample. It must be newer than the other samples of its series.
func (m *memory) add(l labels.Labels, at time.Time, value float64) {
	if m.series == nil {
		m.series = map[string]*series{}
	}
	key := l.String()
	s := m.series[key]
	if s == nil {
		s = &series{labels: l}
		m.series[key] = s
	}
	s.samples = append(s.samples, sample{at.UnixMilli(), value})
}

func (m *memory) len() int { return len(m.series) }

// Querier implements storage.Queryable.
func (m *memory) Querier(mint, maxt int64) (storage.Querier, error) {
	return memoryQuerier{m, mint, maxt}, nil
}

type memoryQuerier struct {
	*memory
	mint, maxt int64
}

// Select implements storage.Querier.
func (q memoryQuerier) Select(_ context.Context, _ bool, _ *storage.SelectHints,
	matchers ...*labels.Matcher) storage.SeriesSet {
	set := &seriesSet{}
	for _, s := range q.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.labels.Get(m.Name)) }) {
			continue
		}
		var within []chunks.Sample
		for _, at := range s.samples {
			if at.T() >= q.mint && at.T() <= q.maxt {
				within = append(within, at)
			}
		}
		if len(within) > 0 {
			set.list = append(set.list, storage.NewListSeries(s.labels, within))
		}
	}
	slices.SortFunc(set.list, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return set
}

// LabelValues implements storage.LabelQuerier.
func (memoryQuerier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string,
	annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier.
func (memoryQuerier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string,
	annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.LabelQuerier.
func (memoryQuerier) Close() error { return nil }

type seriesSet struct {
	list []storage.Series
	next int
}

func (s *seriesSet) Next() bool                        { s.next++; return s.next <= len(s.list) }
func (s *seriesSet) At() storage.Series                { return s.list[s.next-1] }
func (s *seriesSet) Err() error                        { return nil }
func (s *seriesSet) Warnings() annotations.Annotations { return nil }
