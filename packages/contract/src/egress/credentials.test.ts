import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { findPathRuleFault, parsePathRule } from './credential-paths.ts';
import { collectGrants, PutCredentialsRequest } from './credentials.ts';
import { MAX_SECRET_BYTES, PutSecretRequest, SecretName } from './secrets.ts';
import { AppError } from '../errors.ts';
import { invalidRequest } from '../invalid-request.ts';

const SERVICES = [
  { name: 'openai', basePath: '/v1' },
  { name: 'github', basePath: '' },
];
const CANARY = 'canary-0f1e2d3c4b5a-secret';

function refusal(input: unknown): string {
  const result = PutCredentialsRequest.safeParse(input);
  if (!result.success) return invalidRequest(result.error, { where: 'body', input }).message;
  try {
    collectGrants(result.data, SERVICES);
  } catch (error) {
    assert.ok(error instanceof AppError);
    return `${error.code}: ${error.message}`;
  }
  return assert.fail(`accepted ${JSON.stringify(input)}`);
}

function withPath(path: unknown): unknown {
  return withEndpoint({ methods: [], paths: [path] });
}

function withEndpoint(endpoint: unknown): unknown {
  return { credentials_v2: { github: { key: 'k', endpoints: [endpoint] } } };
}

const at = String.raw`^credentials_v2\.github\.endpoints\[0\]\.`;
const REFUSED: [what: string, input: unknown, message: RegExp][] = [
  [
    'an unknown service',
    { credentials: { nobody: 'k' } },
    /^invalid_request: credentials: .* known are github, openai$/,
  ],
  [
    'a service in both forms',
    { credentials: { github: 'k' }, credentials_v2: { github: { key: 'k', endpoints: [] } } },
    /^conflicting_options: credentials, credentials_v2: both name github/,
  ],
  ['an empty secret', { credentials: { openai: '' } }, /^credentials\.openai: must not be empty$/],
  [
    'a line break in a secret',
    { credentials: { openai: 'sk-a\n' } },
    /^credentials\.openai: must not contain control/,
  ],
  ['NUL in a secret', { credentials: { openai: 'sk\0a' } }, /control characters/],
  ['a secret with its scheme', { credentials: { openai: 'Bearer sk' } }, /without "Bearer"$/],
  ['a secret beyond ASCII', { credentials: { openai: 'sk-é' } }, /printable ASCII/],
  [
    'a secret that is too long',
    { credentials: { openai: 'a'.repeat(MAX_SECRET_BYTES + 1) } },
    /at most 8192 bytes/,
  ],
  [
    'a secret that is no text',
    { credentials: { openai: 7 } },
    /^credentials\.openai: must be a string, or \{"secret": "<name>"\} for a secret of the organization$/,
  ],
  [
    'no name of a secret',
    { credentials: { openai: {} } },
    /^credentials\.openai\.secret: is required, must be the name of a secret/,
  ],
  [
    'a number as the name of a secret',
    { credentials: { openai: { secret: 7 } } },
    /^credentials\.openai\.secret: must be the name of a secret, as a string$/,
  ],
  [
    'a secret as the name of one',
    { credentials_v2: { github: { key: { secret: CANARY.toUpperCase() }, endpoints: [] } } },
    /^credentials_v2\.github\.key\.secret: must be the name of a secret: 1–40/,
  ],
  [
    'a name and a value',
    { credentials: { openai: { secret: 'a', value: CANARY } } },
    /^credentials\.openai: has an unknown field/,
  ],
  ['a list', { credentials: [] }, /^credentials: must be an object of service and secret$/],
  [
    'an upper-case service',
    { credentials: { OpenAI: 'k' } },
    /^credentials: the names in it must be short names/,
  ],
  [
    'too many services',
    { credentials: Object.fromEntries(Array.from({ length: 17 }, (_, n) => [`s${n}`, 'k'])) },
    /^credentials: must have at most 16 services$/,
  ],
  [
    'text for rules',
    { credentials_v2: { github: 'k' } },
    /^credentials_v2\.github: must be an object with key and endpoints$/,
  ],
  [
    'no endpoints',
    { credentials_v2: { github: { key: 'k' } } },
    /^credentials_v2\.github\.endpoints: is required, must be a list$/,
  ],
  [
    'an unknown field of rules',
    { credentials_v2: { github: { key: 'k', endpoints: [], paths: [] } } },
    /^credentials_v2\.github: has an unknown field/,
  ],
  ['no paths', withEndpoint({ methods: [] }), new RegExp(`${at}paths: is required`, 'u')],
  [
    'an unknown method',
    withEndpoint({ methods: ['FETCH'], paths: [] }),
    new RegExp(String.raw`${at}methods\[0\]: must be one of GET`, 'u'),
  ],
  ['TRACE', withEndpoint({ methods: ['TRACE'], paths: [] }), /must be one of/],
  [
    'a URL for a path',
    withPath('https://api.github.com/x'),
    new RegExp(String.raw`${at}paths\[0\]: must begin with "/"`, 'u'),
  ],
  ['a relative path', withPath('repos'), /must begin with "\/"/],
  ['a query', withPath('/a?b'), /no query/],
  ['a fragment', withPath('/a#b'), /no fragment/],
  ['a parent segment', withPath('/a/../b'), /"\." or "\.\."/],
  ['a parent segment with parameters', withPath('/a/..;x/b'), /"\." or "\.\."/],
  ['an own segment', withPath('/a/.'), /"\." or "\.\."/],
  ['an encoded dot', withPath('/a/%2e%2E'), /encoded "\."/],
  ['an encoded slash', withPath('/a%2fb'), /encoded "\."/],
  ['an encoded backslash', withPath('/a%5Cb'), /encoded "\."/],
  ['a doubly encoded slash', withPath('/a%252fb'), /encoded twice/],
  ['an encoded NUL', withPath('/a%00'), /control character/],
  ['a doubled slash', withPath('//a'), /"\/\/"/],
  ['a backslash', withPath('/a\\b'), /backslash/],
  ['a space', withPath('/a b'), /percent-encode/],
  ['a doubled wildcard', withPath('/a/**'), /a trailing/],
  ['too many wildcards', withPath(`/${'*a'.repeat(9)}`), /at most 8 wildcards/],
  ['a broken encoding', withPath('/a%zz'), /valid UTF-8/],
  ['bytes that are not UTF-8', withPath('/a%ff'), /valid UTF-8/],
  ['a long path', withPath(`/${'a'.repeat(600)}`), /at most 512 bytes/],
  [
    'many endpoints',
    {
      credentials_v2: {
        github: { key: 'k', endpoints: Array.from({ length: 33 }, () => ({ methods: [], paths: [] })) },
      },
    },
    /at most 32 entries/,
  ],
  [
    'many paths',
    {
      credentials_v2: {
        github: {
          key: 'k',
          endpoints: Array.from({ length: 9 }, () => ({
            methods: [],
            paths: Array.from({ length: 64 }, () => '/a'),
          })),
        },
      },
    },
    /at most 512 paths in all/,
  ],
  [
    'a path without the base path',
    { credentials_v2: { openai: { key: 'k', endpoints: [{ methods: [], paths: ['/v1/x', '/chat'] }] } } },
    /paths\[1\]: must begin with \/v1, as all paths of openai do$/,
  ],
];

for (const [what, input, message] of REFUSED) {
  test(`refuses ${what} and says where`, () => {
    assert.match(refusal(input), message);
  });
}

test('both forms are merged into one sorted list, with methods in upper case', () => {
  const request = PutCredentialsRequest.parse({
    credentials: { openai: 'sk-1' },
    credentials_v2: {
      github: { key: 'ghp', endpoints: [{ methods: ['get', 'Post'], paths: ['/repos/o/*'] }] },
    },
  });
  assert.deepEqual(collectGrants(request, SERVICES), [
    {
      service: 'github',
      key: 'ghp',
      field: 'credentials_v2.github.key',
      endpoints: [{ methods: ['GET', 'POST'], paths: ['/repos/o/*'] }],
    },
    { service: 'openai', key: 'sk-1', field: 'credentials.openai', endpoints: null },
  ]);
  assert.deepEqual(collectGrants({}, SERVICES), []);
});

test('rules above the base path, and wildcards in place of it, are accepted', () => {
  for (const path of ['/', '/*', '/v1', '/v1/chat', '/*/chat', '/v*/chat'])
    collectGrants(
      { credentials_v2: { openai: { key: 'k', endpoints: [{ methods: [], paths: [path] }] } } },
      SERVICES,
    );
});

test('no refusal shows a secret, wherever the caller put it', () => {
  const places: unknown[] = [
    { credentials: { openai: `${CANARY}\n` } },
    { credentials: { nobody: CANARY } },
    { credentials: { [CANARY]: 'openai' } },
    { credentials: { [CANARY]: 7 } },
    { credentials: { [`${CANARY}-ABC`]: '' } },
    { credentials: CANARY },
    { credentials: [CANARY] },
    { credentials: { openai: { key: CANARY } } },
    { credentials: { openai: { [CANARY]: 1 } } },
    { credentials_v2: { [CANARY]: { key: CANARY, endpoints: [] } } },
    { credentials_v2: { openai: { key: CANARY, endpoints: 1 } } },
    { credentials_v2: { openai: { key: CANARY, endpoints: [], [CANARY]: 1 } } },
    { credentials_v2: { openai: CANARY } },
    { credentials_v2: { openai: { key: `${CANARY} `, endpoints: [CANARY] } } },
    { credentials: { github: CANARY }, credentials_v2: { github: { key: CANARY, endpoints: [] } } },
    { credentials: { canary: CANARY }, credentials_v2: { openai: { key: CANARY, endpoints: [] } } },
  ];
  for (const place of places) {
    const message = refusal(place);
    assert.ok(!message.includes('0f1e2d3c'), message);
  }
});

test('any text is a valid rule or has a reported fault, and no text makes the check throw', () => {
  const piece = fc.oneof(
    fc.constantFrom('/', '*', '%', '%2', '2e', '%25', '.', '..', ';', 'a'),
    fc.string({ maxLength: 2 }),
  );
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 12 }), (pieces) => {
      const text = pieces.join('');
      if (findPathRuleFault(text) !== undefined) {
        assert.throws(() => parsePathRule(text), RangeError);
        return;
      }
      const { segments } = parsePathRule(text);
      assert.ok(
        segments.every((one) => !one.join('*').includes('/') && !['.', '..'].includes(one.join('*'))),
      );
    }),
    { numRuns: 10_000 },
  );
});

test('credentials name secrets of the organization in place of values, in both forms', () => {
  const request = PutCredentialsRequest.parse({
    credentials: { openai: { secret: 'openai-production' } },
    credentials_v2: { github: { key: { secret: 'github_bot' }, endpoints: [] } },
  });
  assert.deepEqual(collectGrants(request, SERVICES), [
    { service: 'github', key: { secret: 'github_bot' }, field: 'credentials_v2.github.key', endpoints: [] },
    {
      service: 'openai',
      key: { secret: 'openai-production' },
      field: 'credentials.openai',
      endpoints: null,
    },
  ]);
});

test('names of secrets are short and have one spelling, and their values fit into a header', () => {
  const isName = (name: string): boolean => SecretName.safeParse(name).success;
  for (const name of ['a', 'openai', 'openai-production', 'a_b-c9', 'a'.repeat(40)])
    assert.ok(isName(name), name);
  for (const name of ['', 'A', '9a', '-a', 'a-', 'a--b', 'a.b', 'a/b', 'a b', 'é', 'a\n', 'a'.repeat(41)])
    assert.ok(!isName(name), name);
  for (const value of ['', 'a b', 'a\n', 'é', 'Bearer x', 'a'.repeat(MAX_SECRET_BYTES + 1), 7, null])
    assert.ok(!PutSecretRequest.safeParse({ value }).success, String(value));
  assert.ok(PutSecretRequest.safeParse({ value: 'a'.repeat(MAX_SECRET_BYTES) }).success);
});
