package pressure

import "fmt"

// isScarce reports whether little memory is available. meminfo is the beginning of /proc/meminfo (proc(5)).
func isScarce(meminfo string) (bool, error) {
	var total, free, available uint64
	const first = "MemTotal: %d kB\nMemFree: %d kB\nMemAvailable: %d kB\n"
	if _, err := fmt.Sscanf(meminfo, first, &total, &free, &available); err != nil {
		return false, fmt.Errorf("/proc/meminfo: %w", err)
	}
	return available < total/scarceFraction, nil
}
