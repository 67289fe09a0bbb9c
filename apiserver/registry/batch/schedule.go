package batch

import (
	"fmt"
	"strings"
	"time"
	_ "time/tzdata" // small systems have no zones of their own

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// scheduleErrors reads the schedule as the controller will. A zone belongs into
// timeZone; zoneMayStay is for schedules that are stored with one.
func scheduleErrors(spec *batchv1.CronJobSpec, zoneMayStay bool, path *field.Path) field.ErrorList {
	schedule := spec.Schedule
	if schedule == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	var errs field.ErrorList
	if err := parseSchedule(schedule); err != nil {
		errs = append(errs, field.Invalid(path, schedule, err.Error()))
	}
	switch zoned := strings.Contains(schedule, "TZ"); {
	case zoned && !zoneMayStay:
		errs = append(errs, field.Invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"))
	case zoned && spec.TimeZone != nil:
		errs = append(errs, field.Invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule"))
	}
	return errs
}

// parseSchedule keeps from the parser what it panics about: a zone with nothing
// behind it.
func parseSchedule(schedule string) error {
	if (strings.HasPrefix(schedule, "TZ=") || strings.HasPrefix(schedule, "CRON_TZ=")) && !strings.Contains(schedule, " ") {
		return fmt.Errorf("a schedule must follow the time zone: %s", schedule)
	}
	_, err := cron.ParseStandard(schedule)
	return err
}

// zoneErrors wants a zone by a name of the IANA's database, with which no file
// outside of it can be named.
func zoneErrors(zone string, path *field.Path) field.ErrorList {
	if zone == "" {
		return field.ErrorList{field.Invalid(path, zone, "timeZone must be nil or non-empty string")}
	}
	for part := range strings.SplitSeq(zone, "/") {
		if !isZonePart(part) {
			return field.ErrorList{field.Invalid(path, zone, "unknown time zone "+zone)}
		}
	}
	var errs field.ErrorList
	if strings.EqualFold(zone, "Local") {
		errs = append(errs, field.Invalid(path, zone, "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"))
	}
	if _, err := time.LoadLocation(zone); err != nil {
		errs = append(errs, field.Invalid(path, zone, err.Error()))
	}
	return errs
}

// isZonePart: up to 14 letters, digits and ".-_+", but no path of its own.
func isZonePart(part string) bool {
	if part == "" || len(part) > 14 || part == "." || part == ".." || part[0] == '-' {
		return false
	}
	return strings.Trim(part, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_+") == ""
}
