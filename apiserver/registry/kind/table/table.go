// Package table renders objects as Tables of meta.k8s.io/v1, which kubectl requests.
package table

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod/store"
)

// Column is a column of a kind. Type is "string", "integer" or "date". A column with Priority 0 is always shown, with 1
// only for -o wide.
type Column struct {
	metav1.TableColumnDefinition
	Cell func(obj store.Object, now time.Time) any
}

// Row returns the row of an object. Its RawExtension contains object unchanged.
func Row(columns []Column, obj store.Object, now time.Time, object runtime.RawExtension) metav1.TableRow {
	cells := make([]any, len(columns))
	for i, c := range columns {
		cells[i] = c.Cell(obj, now)
	}
	return metav1.TableRow{Cells: cells, Object: object}
}

// Definitions returns the columns' headings.
func Definitions(columns []Column) []metav1.TableColumnDefinition {
	out := make([]metav1.TableColumnDefinition, len(columns))
	for i, c := range columns {
		out[i] = c.TableColumnDefinition
	}
	return out
}

// Converted returns the columns for objects that convert turns into objects of the columns.
func Converted(columns []Column, convert func(store.Object) store.Object) []Column {
	out := make([]Column, len(columns))
	for i, c := range columns {
		cell := c.Cell
		c.Cell = func(obj store.Object, now time.Time) any { return cell(convert(obj), now) }
		out[i] = c
	}
	return out
}
