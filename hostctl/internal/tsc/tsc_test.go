package tsc

import "testing"

func TestRateIsTheSameEachTime(t *testing.T) {
	first, err := MeasureKHz()
	if err != nil {
		t.Fatal(err)
	}
	second, err := MeasureKHz()
	if err != nil {
		t.Fatal(err)
	}
	// From 500 MHz to 10 GHz, and no more than one part in a thousand apart.
	if first < 500_000 || first > 10_000_000 {
		t.Fatalf("%d kHz", first)
	}
	if difference := first - second; difference*1000 > first || -difference*1000 > first {
		t.Fatalf("%d kHz, then %d kHz", first, second)
	}
}
