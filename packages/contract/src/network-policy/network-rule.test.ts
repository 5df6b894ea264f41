import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { foldSeenName } from './host-name.ts';
import { MAX_RULE_LENGTH, readNetworkRule } from './network-rule.ts';

function spelling(text: string): string | undefined {
  const rule = readNetworkRule(text);
  return 'fault' in rule ? undefined : `${rule.kind} ${rule.text}`;
}

test('all spellings of a rule become one canonical spelling', () => {
  const spellings: [string, string][] = [
    ['203.0.113.0/24', 'range 203.0.113.0/24'],
    ['203.0.113.7', 'range 203.0.113.7'],
    ['203.0.113.7/32', 'range 203.0.113.7'],
    ['2001:DB8:0::/32', 'range 2001:db8::/32'],
    ['2001:db8::07', 'range 2001:db8::7'],
    ['0.0.0.0/0', 'range 0.0.0.0/0'],
    ['0:0::/0', 'range ::/0'],
    ['*', 'all *'],
    ['API.Example.COM', 'name api.example.com'],
    ['api.example.com.', 'name api.example.com'],
    ['*.Example.com.', 'subdomains *.example.com'],
    ['bücher.example', 'name xn--bcher-kva.example'],
    ['*.BÜCHER.example', 'subdomains *.xn--bcher-kva.example'],
    ['a。ü.example', 'name a.xn--tda.example'],
    ['my_bucket.example', 'name my_bucket.example'],
    ['intranet', 'name intranet'],
    ['7up.example', 'name 7up.example'],
    ['1.2.3.4.example', 'name 1.2.3.4.example'],
    ['registry:npm', 'registry registry:npm'],
    ['Registry:NPM', 'registry registry:npm'],
  ];
  for (const [text, expected] of spellings) assert.equal(spelling(text), expected, text);
});

test('an invalid rule is refused with its correction', () => {
  const refused: [string, RegExp][] = [
    ['', /is empty/u],
    [' ', /space/u],
    ['a.example b.example', /space/u],
    ['a.example\0', /control/u],
    ['a.example\n', /space or a control/u],
    ['https://a.example/x', /is a URL; write only the host/u],
    ['a.example/x', /has a path/u],
    ['user:pass@a.example', /has an @/u],
    ['a.example:443', /has a port.*write a\.example$/u],
    ['203.0.113.7:80', /has a port.*write 203\.0\.113\.7$/u],
    ['[2001:db8::1]:443', /brackets/u],
    ['[2001:db8::1]', /brackets/u],
    ['fe80::1%eth0', /not an IPv6 address/u],
    ['1::2::3', /not an address range/u],
    ['203.0.113.7/24', /bits set after its prefix; write 203\.0\.113\.0\/24$/u],
    ['2001:db8::1/32', /write 2001:db8::\/32$/u],
    ['203.0.113.0/33', /prefix from 0 to 32/u],
    ['2001:db8::/129', /prefix from 0 to 128/u],
    ['203.0.113.0/024', /prefix from 0 to 32/u],
    ['203.0.113.0/255.255.255.0', /prefix from 0 to 32/u],
    ['203.0.113.0/', /prefix from 0 to 32/u],
    ['203.0.113.0/24/8', /prefix from 0 to 32/u],
    ['::ffff:203.0.113.7', /form of IPv6; write it like 203\.0\.113\.7$/u],
    ['::ffff:0:0/96', /form of IPv6/u],
    ['0177.0.0.1', /ends in a number.*four decimal/u],
    ['0x7f.0.0.1', /ends in a number/u],
    ['127.1', /ends in a number/u],
    ['2130706433', /ends in a number/u],
    ['0x7f000001', /ends in a number/u],
    ['a.0x', /ends in a number/u],
    ['１２７.0.0.1', /ends in a number/u],
    ['203.0.113.0-203.0.113.9', /not a host name/u],
    ['*.203.0.113.7', /ends in a number/u],
    ['*.', /has no name/u],
    ['*example.com', /\* elsewhere/u],
    ['a.*.example', /\* elsewhere/u],
    ['*.*.example', /\* elsewhere/u],
    ['**', /\* elsewhere/u],
    ['.example.com', /two dots in a row, or one at its start/u],
    ['a..example', /two dots/u],
    ['a.example..', /two dots/u],
    ['.', /has no name/u],
    ['a,b.example', /not a host name/u],
    ['a%2eexample', /not a host name/u],
    ['ü%2eexample', /characters that no host name/u],
    ['ü?a.example', /characters that no host name/u],
    ['a\u200d.ü', /characters that no host name/u],
    [`${'a'.repeat(64)}.example`, /longer than 63/u],
    [`${'a.'.repeat(127)}example`, /longer than the 253/u],
    ['a'.repeat(MAX_RULE_LENGTH + 1), /longer than 512/u],
    ['registry:', /names no registry/u],
    ['registry:n pm', /space/u],
    ['registry:../npm', /names no registry/u],
  ];
  for (const [text, reason] of refused) {
    const rule = readNetworkRule(text);
    assert.ok('fault' in rule, text);
    assert.match(rule.fault, reason, text);
  }
});

test('no text makes the parser throw, and the text of an accepted rule parses to the same rule', () => {
  const pieces = [
    'a',
    'xn--',
    'ü',
    '。',
    '.',
    '..',
    '*',
    '*.',
    ':',
    '/',
    '::',
    '0',
    '255',
    '0x',
    '-',
    '_',
    '%',
    '[',
    ']',
    '@',
  ];
  const hostile = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: 'grapheme' }),
    fc
      .array(fc.constantFrom(...pieces, 'registry:', 'example', '/24', '\u00ad', '\u0130', '１'))
      .map((all) => all.join('')),
    fc.ipV4(),
    fc.ipV6(),
    fc.domain(),
    fc.webUrl(),
  );
  fc.assert(
    fc.property(hostile, (text) => {
      const rule = readNetworkRule(text);
      if (!('fault' in rule)) assert.deepEqual(readNetworkRule(rule.text), rule);
    }),
    { numRuns: 5000 },
  );
});

test('a name that a guest shows folds to the spelling of the rules, or is not accepted', () => {
  assert.equal(foldSeenName('API.Example.COM.'), 'api.example.com');
  for (const text of [
    '',
    '.',
    'a..b',
    'a.example..',
    'a.example:443',
    'bücher.example',
    '127.1',
    'a.example\0',
    ' a.example',
  ])
    assert.equal(foldSeenName(text), undefined, text);
  fc.assert(
    fc.property(fc.domain(), (text) => {
      const rule = readNetworkRule(text);
      assert.equal(foldSeenName(`${text.toUpperCase()}.`), 'fault' in rule ? undefined : rule.text);
    }),
  );
});
