import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { isSameAuthority, parseAuthority, parseHostName } from './host-name.ts';

test('names are folded to one form', () => {
  assert.equal(parseHostName('WWW.Example.COM.'), 'www.example.com');
  assert.equal(parseHostName('_srv.xn--bcher-kva.example'), '_srv.xn--bcher-kva.example');
  assert.equal(parseHostName('1.2.3.4.in-addr.arpa'), '1.2.3.4.in-addr.arpa');
  assert.equal(parseHostName('localhost'), 'localhost');
});

test('a text that is not a name, or that some parser reads as an address, is refused', () => {
  const texts = [
    '',
    '.',
    '..',
    'a..b',
    '.a',
    'a.com..',
    '-a.com',
    'a-.com',
    'a b',
    'a\0',
    'a\n',
    'a/b',
    '*.a.com',
  ];
  const addresses = [
    '127.0.0.1',
    '127.1',
    '2130706433',
    '017700000001',
    '0x7f.1',
    '0x7f000001',
    '1.2.3.0x',
    '::1',
  ];
  const foreign = ['b\u00fccher.example', 'a\u3002com', '\u212aelvin.com', '\uff41.com', 'a\u00ad.com'];
  for (const text of [...texts, ...addresses, ...foreign]) assert.equal(parseHostName(text), undefined, text);
  assert.equal(parseHostName(`${'a'.repeat(64)}.com`), undefined);
  const longest = `${'a.'.repeat(126)}a`;
  assert.equal(parseHostName(longest), longest);
  assert.equal(parseHostName(`a${longest}`), undefined);
});

test('an authority is a host with an optional port', () => {
  const name = (text: string, port: number) => ({ host: { kind: 'name', name: text }, port });
  const address = (text: string, port: number) => ({ host: { kind: 'address', address: text }, port });
  assert.deepEqual(parseAuthority('A.com.', 80), name('a.com', 80));
  assert.deepEqual(parseAuthority('a.com:8080', 80), name('a.com', 8080));
  assert.deepEqual(parseAuthority('203.0.113.7:81', 80), address('203.0.113.7', 81));
  assert.deepEqual(parseAuthority('[2001:DB8:0::1]:81', 80), address('2001:db8::1', 81));
  const wrong = [
    '',
    ':80',
    'a.com:',
    'a.com:0',
    'a.com:65536',
    'a.com:8x',
    'a.com:-1',
    'a.com: 1',
    'a.com:80:80',
  ];
  const strange = [
    'u@a.com',
    'a.com/b',
    '010.0.0.1',
    '1.2.3',
    '[::1',
    '::1',
    '[::1]x',
    '[fe80::1%25eth0]',
    '[a.com]',
  ];
  for (const text of [...wrong, ...strange]) assert.equal(parseAuthority(text, 80), undefined, text);
});

test('authorities are equal in every spelling', () => {
  const isSame = (one: string, other: string) => {
    const [a, b] = [parseAuthority(one, 80), parseAuthority(other, 80)];
    assert.ok(a && b);
    return isSameAuthority(a, b);
  };
  assert.ok(isSame('a.com', 'A.COM.:80') && isSame('[::1]', '[0:0::1]:80'));
  assert.ok(!isSame('a.com', 'b.com') && !isSame('a.com', 'a.com:81') && !isSame('203.0.113.7', '[::1]'));
});

test('the parsers never throw, and a folded name does not change again', () => {
  const anyText = fc.oneof(
    fc.string({ unit: 'binary' }),
    fc.string({ unit: fc.constantFrom('a', 'Z', 'n', '0', 'x', '9', '.', '-', '_', ':', '[', ']') }),
  );
  fc.assert(
    fc.property(anyText, (text) => {
      parseAuthority(text, 80);
      const name = parseHostName(text);
      if (name === undefined) return;
      assert.equal(parseHostName(name), name);
      assert.equal(new URL(`http://${name}/`).hostname, name, 'a URL parser reads the same name');
    }),
    { numRuns: 5000 },
  );
});
