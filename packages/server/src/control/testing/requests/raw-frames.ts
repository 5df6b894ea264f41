/** WebSocket frames as bytes: every opcode and flag, wrong lengths, payloads of all forms of message. */
import fc from 'fast-check';

const payload = fc.oneof(
  fc.constantFrom(
    '{"command":"x"}',
    '{"type":"stdin","data":"a\\u0000b"}',
    '{"type":"signal","signal":"TERM"}',
    '{"type":"shell_run","id":"a","command":"x"}',
    '{"type":"shell_run","id":"\\ud800","command":"\\u0000"}',
    '{"type":"resize","cols":1,"rows":1e9}',
    '{"__proto__":{}}',
    '[[[[',
    '',
    '\u0003\u00e8bye',
    '\u0000\u0001',
    '\u00ff\u00fe',
  ),
  fc.string({ unit: 'binary-ascii', maxLength: 140 }),
);

interface Frame {
  first: number;
  isMasked: boolean;
  length: 'right' | 'too long' | 'enormous';
  payload: string;
}

const frame: fc.Arbitrary<Frame> = fc.record({
  first: fc.oneof(fc.constantFrom(0x81, 0x82, 0x88, 0x89, 0x8a, 0x01, 0x00, 0x80), fc.nat({ max: 255 })),
  isMasked: fc.oneof(
    { weight: 5, arbitrary: fc.constant(true) },
    { weight: 1, arbitrary: fc.constant(false) },
  ),
  length: fc.constantFrom('right', 'right', 'right', 'right', 'too long', 'enormous'),
  payload,
});

/** Several frames in a row; a character is a byte. The mask is all zeros, so that payloads stay unchanged. */
export const rawFrames: fc.Arbitrary<string> = fc
  .array(frame, { maxLength: 6 })
  .map((frames) => frames.map(toBytes).join(''));

function toBytes({ first, isMasked, length, payload }: Frame): string {
  const mask = isMasked ? 0x80 : 0;
  const head =
    length === 'enormous'
      ? [first, mask | 127, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]
      : [first, mask | 126, 0, payload.length + (length === 'right' ? 0 : 50)];
  return Buffer.from(isMasked ? [...head, 0, 0, 0, 0] : head).toString('latin1') + payload;
}
