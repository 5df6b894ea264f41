import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { quote, toLiteral, toPython, toPythonArguments, writeSnippet } from './snippets.ts';

/** Texts that would end a literal, or begin something else, if they were not escaped. */
const TEXTS = [
  'plain',
  "it's",
  'a"b',
  '$(id) `id` \\',
  'line\nbreak',
  '</script>',
  'ünï \u{1F600}',
  '\u2028',
  '',
];

test('a quoted text is one argument of a shell, as it was', () => {
  for (const text of TEXTS) {
    const shown = execFileSync('sh', ['-c', `printf %s ${quote(text)}`], { encoding: 'utf8' });
    assert.equal(shown, text);
  }
});

test('a literal of TypeScript has the value that it was made from', async () => {
  const value = { plain: 1, 'with space': [true, null, ...TEXTS], nested: { a: 'b' }, left: undefined };
  const code = `export default ${toLiteral(value)};`;
  const module = (await import(`data:text/javascript,${encodeURIComponent(code)}`)) as { default: unknown };
  assert.deepEqual(module.default, JSON.parse(JSON.stringify(value)));
});

test('a literal of Python has the value that it was made from', () => {
  const value = { a: [true, false, null, 1.5, ...TEXTS] };
  const program = `import json,sys; print(json.dumps(${toPython(value)}))`;
  const printed = execFileSync('python3', ['-c', program], { encoding: 'utf8' });
  assert.deepEqual(JSON.parse(printed), value);
});

test('arguments of Python have names in snake_case, and none that are left out', () => {
  assert.equal(
    toPythonArguments({ memMiB: 5, autoHibernate: true, none: undefined }),
    'mem_mib=5, auto_hibernate=True',
  );
});

test('a call is written for curl with its body, and never with a key', () => {
  const { curl } = writeSnippet(
    { method: 'POST', path: '/v1/runs', body: { name: "it's" }, typescript: '', python: '' },
    'http://127.0.0.1:8080',
  );
  assert.equal(
    curl,
    [
      'curl -X POST http://127.0.0.1:8080/v1/runs',
      '  -H "Authorization: Bearer $SANDBOX_API_KEY"',
      "  -H 'Content-Type: application/json'",
      `  -d '{"name":"it'\\''s"}'`,
    ].join(' \\\n'),
  );
});
