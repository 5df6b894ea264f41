import assert from 'node:assert/strict';
import { test } from 'node:test';
import serialize from 'canonicalize';
import fc from 'fast-check';
import { canonicalize } from './canonical-json.ts';

test('the example of RFC 8785, section 3.2.2, gives the printed result', () => {
  const input = JSON.parse(
    '{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],' +
      '"string":"\\u20ac$\\u000F\\u000aA\'\\u0042\\u0022\\u005c\\\\\\"\\/","literals":[null,true,false]}',
  );
  assert.equal(
    canonicalize(input),
    '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],' +
      '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}',
  );
});

test('names are sorted by UTF-16 code units, as in RFC 8785, section 3.2.3', () => {
  const input = {
    '€': 'Euro Sign',
    '\r': 'Carriage Return',
    '\ufb33': 'Hebrew Letter Dalet With Dagesh',
    '1': 'One',
    '😀': 'Emoji: Grinning Face',
    '\u0080': 'Control',
    ö: 'Latin Small Letter O With Diaeresis',
  };
  const values = Object.values(JSON.parse(canonicalize(input)) as Record<string, string>);
  // JavaScript objects put names that are whole numbers first, so the test also checks the text.
  assert.ok(canonicalize(input).startsWith('{"\\r":"Carriage Return","1":"One","\u0080":'));
  assert.deepEqual(values.slice(-4), [
    'Latin Small Letter O With Diaeresis',
    'Euro Sign',
    'Emoji: Grinning Face',
    'Hebrew Letter Dalet With Dagesh',
  ]);
});

test('the numbers of RFC 8785, appendix B, give the listed texts', () => {
  const samples: [string, string][] = [
    ['0000000000000000', '0'],
    ['8000000000000000', '0'],
    ['0000000000000001', '5e-324'],
    ['7fefffffffffffff', '1.7976931348623157e+308'],
    ['4340000000000000', '9007199254740992'],
    ['444b1ae4d6e2ef4f', '999999999999999900000'],
    ['444b1ae4d6e2ef50', '1e+21'],
    ['3eb0c6f7a0b5ed8d', '0.000001'],
    ['41b3de4355555557', '333333333.33333343'],
    ['becbf647612f3696', '-0.0000033333333333333333'],
  ];
  for (const [bits, text] of samples)
    assert.equal(canonicalize(Buffer.from(bits, 'hex').readDoubleBE()), text);
});

test('any JSON value gives the same text as another implementation', () => {
  fc.assert(
    fc.property(fc.jsonValue({ stringUnit: 'binary' }), (value) => {
      assert.equal(canonicalize(value), serialize(value));
    }),
    { numRuns: 2_000 },
  );
});

test('a value that JSON cannot represent is refused, and an undefined property is omitted', () => {
  for (const value of [NaN, Infinity, 1n, undefined, Symbol.iterator, '\ud800', { '\udc00': 1 }])
    assert.throws(() => canonicalize(value), TypeError);
  assert.equal(canonicalize({ a: undefined, b: 1 }), '{"b":1}');
});
