package descriptor

import (
	"math"
	"reflect"
	"testing"
)

func TestGapsHoldEveryDescriptorThatIsNotKept(t *testing.T) {
	for _, test := range []struct {
		kept []int
		want [][2]uint
	}{
		{nil, [][2]uint{{3, math.MaxUint32}}},
		{[]int{3}, [][2]uint{{4, math.MaxUint32}}},
		{[]int{4, 3}, [][2]uint{{5, math.MaxUint32}}},
		{[]int{7, 4}, [][2]uint{{3, 3}, {5, 6}, {8, math.MaxUint32}}},
		{[]int{5, 5}, [][2]uint{{3, 4}, {6, math.MaxUint32}}},
	} {
		if got := gapsBetween(test.kept); !reflect.DeepEqual(got, test.want) {
			t.Errorf("kept %v: got %v, want %v", test.kept, got, test.want)
		}
	}
}
