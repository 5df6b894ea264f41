package commands

import (
	"context"
	"testing"
)

// reserveFirst reserves an id, and returns the result of a repetition that was made before the start is over.
func reserveFirst(t *testing.T, all *table) (repeated <-chan *command) {
	t.Helper()
	if c, err := all.reserve(context.Background(), "first"); c != nil || err != nil {
		t.Fatalf("a new id: %v, %v", c, err)
	}
	got := make(chan *command)
	go func() {
		c, err := all.reserve(context.Background(), "first")
		if err != nil {
			t.Error(err)
		}
		got <- c
	}()
	return got
}

func TestARepeatedStartGetsTheCommandOfTheFirst(t *testing.T) {
	all := newTable()
	repeated := reserveFirst(t, all)
	started := &command{id: "first"}
	all.add(started)
	if c := <-repeated; c != started {
		t.Fatalf("the repetition got %v", c)
	}
}

func TestARepeatedStartBeginsAnewWhenTheFirstFails(t *testing.T) {
	all := newTable()
	repeated := reserveFirst(t, all)
	all.release("first")
	if c := <-repeated; c != nil {
		t.Fatalf("the repetition got %v", c)
	}
}

func TestAClientThatLeavesWaitsNoLonger(t *testing.T) {
	all := newTable()
	if _, err := all.reserve(context.Background(), "first"); err != nil {
		t.Fatal(err)
	}
	left, leave := context.WithCancel(context.Background())
	leave()
	if _, err := all.reserve(left, "first"); err == nil {
		t.Fatal("a client that had left got an answer")
	}
}
