import assert from 'node:assert/strict';
import { test } from 'node:test';
import { buildServiceCatalogue } from './service-catalogue.ts';

const OWN = {
  name: 'acme-api',
  host: 'api.acme.example',
  authentication: { kind: 'header', header: 'x-acme-key' },
};

function withOwn(...rows: object[]): unknown {
  return { services: rows };
}

test('without a file the catalogue has the five services of the specification', () => {
  const { services, replaced } = buildServiceCatalogue();
  assert.deepEqual([...services.keys()], ['openai', 'anthropic', 'google', 'github', 'huggingface']);
  assert.deepEqual(replaced, []);
});

test('an operator adds services', () => {
  const { services, replaced } = buildServiceCatalogue(withOwn(OWN));
  assert.equal(services.get('acme-api')?.port, 443);
  assert.equal(services.size, 6);
  assert.deepEqual(replaced, []);
});

test('a file replaces a built-in service only with "replace": true', () => {
  const github = { ...OWN, name: 'github', host: 'github.acme.example', base_path: '/api/v3' };
  assert.throws(() => buildServiceCatalogue(withOwn(github)), /github is built in; write "replace": true/);
  const { services, replaced } = buildServiceCatalogue(withOwn({ ...github, replace: true }));
  assert.equal(services.get('github')?.host, 'github.acme.example');
  assert.deepEqual(replaced, ['github']);
});

const REFUSED: [what: string, content: unknown, message: RegExp][] = [
  ['a missing list', {}, /services: is required/],
  ['a misspelt field', withOwn({ ...OWN, hots: 1 }), /services\[0\]/],
  ['a name twice', withOwn(OWN, { ...OWN }), /services\[1\]\.name: acme-api occurs twice/],
  ['a replacement of nothing', withOwn({ ...OWN, replace: true }), /no built-in service/],
  ['a name that cannot be part of a path', withOwn({ ...OWN, name: 'A/b' }), /services\[0\]\.name/],
  ['an address as host', withOwn({ ...OWN, host: '10.0.0.1' }), /services\[0\]\.host: must be a DNS name/],
  ['a URL as host', withOwn({ ...OWN, host: 'https://a.example' }), /services\[0\]\.host/],
  ['a host with a port', withOwn({ ...OWN, host: 'a.example:8443' }), /services\[0\]\.host/],
  ['a name without a dot', withOwn({ ...OWN, host: 'localhost' }), /services\[0\]\.host/],
  ['dot segments in the base path', withOwn({ ...OWN, base_path: '/a/../b' }), /services\[0\]\.base_path/],
  ['a trailing slash in the base path', withOwn({ ...OWN, base_path: '/v1/' }), /services\[0\]\.base_path/],
  [
    'a header of the connection',
    withOwn({ ...OWN, fixed_headers: { 'content-length': '1' } }),
    /the proxy sets itself/,
  ],
  ['a line break in a header', withOwn({ ...OWN, fixed_headers: { 'x-a': 'a\r\nb' } }), /printable ASCII/],
  ['a loader variable', withOwn({ ...OWN, key_variables: ['LD_PRELOAD'] }), /shells or loaders/],
  [
    'a variable of another service',
    withOwn({ ...OWN, key_variables: ['GITHUB_TOKEN'] }),
    /GITHUB_TOKEN belongs to github/,
  ],
  [
    'too many services',
    withOwn(...Array.from({ length: 65 }, (_, n) => ({ ...OWN, name: `s${n}` }))),
    /services/,
  ],
];

for (const [what, content, message] of REFUSED) {
  test(`refuses ${what}`, () => {
    assert.throws(() => buildServiceCatalogue(content), message);
  });
}
