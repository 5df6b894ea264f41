import assert from 'node:assert/strict';
import { test } from 'node:test';
import { formatTraceparent, parseTraceparent } from './traceparent.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const SPAN = '00f067aa0ba902b7';

test('a header is parsed, and formatted as it was', () => {
  for (const flags of ['00', '01']) {
    const header = `00-${TRACE}-${SPAN}-${flags}`;
    const parsed = parseTraceparent(header);
    assert.deepEqual(parsed, { traceId: TRACE, spanId: SPAN, isSampled: flags === '01' });
    assert.equal(formatTraceparent(parsed), header);
  }
});

test('only the bit of the sampled flag counts', () => {
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-03`)?.isSampled, true);
  assert.equal(parseTraceparent(`00-${TRACE}-${SPAN}-fe`)?.isSampled, false);
});

test('a later version may have more fields', () => {
  assert.equal(parseTraceparent(`01-${TRACE}-${SPAN}-01-more`)?.traceId, TRACE);
});

test('an invalid header counts as none', () => {
  const invalid = [
    undefined,
    [`00-${TRACE}-${SPAN}-01`],
    '',
    `00-${TRACE}-${SPAN}`,
    `00-${TRACE}-${SPAN}-01-more`,
    `ff-${TRACE}-${SPAN}-01`,
    `00-${'0'.repeat(32)}-${SPAN}-01`,
    `00-${TRACE}-${'0'.repeat(16)}-01`,
    `00-${TRACE.toUpperCase()}-${SPAN}-01`,
    `00-${TRACE}x-${SPAN}-01`,
    ` 00-${TRACE}-${SPAN}-01`,
    `01-${TRACE}-${SPAN}-01more`,
  ];
  for (const header of invalid) assert.equal(parseTraceparent(header), undefined, String(header));
});
