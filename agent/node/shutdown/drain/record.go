package drain

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"monopod/agent/host/checkpoint"
)

// Record stores the time of the last shutdown in a file, and serves it as metrics with kubelet's names.
type Record struct {
	file       checkpoint.File
	start, end prometheus.Gauge
	last       span
}

// span is the time of a shutdown. End is zero until the pods have ended, and after an interrupted shutdown.
type span struct {
	Start time.Time `json:"startTime"`
	End   time.Time `json:"endTime"`
}

// NewRecord returns a Record and registers its metrics, which are 0 until the first shutdown.
func NewRecord(r prometheus.Registerer, file checkpoint.File) (*Record, error) {
	t := &Record{
		file: file,
		start: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_start_time_seconds",
				Help: "Time at which the last graceful shutdown began, in seconds since 1970."}),
		end: prometheus.NewGauge(
			prometheus.GaugeOpts{Name: "kubelet_graceful_shutdown_end_time_seconds",
				Help: "Time at which the last graceful shutdown ended, in seconds since 1970."}),
	}
	for _, g := range []prometheus.Gauge{t.start, t.end} {
		if err := r.Register(g); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Load reads the file of an earlier process. After an error the metrics stay 0. Load moves a damaged file aside; the
// error contains its new path.
func (t *Record) Load() error {
	var last span
	_, err := t.file.Load(&last)
	if errors.Is(err, checkpoint.ErrDamaged) {
		lost, err := t.file.StartOver(err, "the metrics of the last shutdown are 0")
		return errors.Join(lost, err)
	}
	if err != nil {
		return err
	}
	t.show(last)
	return nil
}

// Begin records the start of a shutdown.
func (t *Record) Begin(now time.Time) error {
	t.show(span{Start: now})
	return t.file.Save(t.last)
}

// End records that all pods have ended.
func (t *Record) End(now time.Time) error {
	t.show(span{Start: t.last.Start, End: now})
	return t.file.Save(t.last)
}

func (t *Record) show(s span) {
	t.last = s
	t.start.Set(seconds(s.Start))
	t.end.Set(seconds(s.End))
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.Unix())
}
