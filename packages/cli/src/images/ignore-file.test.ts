import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../output/failure.ts';
import { parseIgnoreFile, type IgnoreRules, type Verdict } from './ignore-file.ts';

function isIgnored(rules: IgnoreRules, path: string): boolean {
  let verdict: Verdict | undefined;
  const names = path.split('/');
  for (const index of names.keys()) verdict = rules.judge(names.slice(0, index + 1).join('/'), verdict);
  return verdict?.isIgnored ?? false;
}

/** The examples of Docker's documentation, the tests of moby/patternmatcher and moby/ignorefile, and what fell through before. */
const CASES: [rules: string, ignored: string[], kept: string[]][] = [
  [
    '# comment\n*/temp*\n*/*/temp*\ntemp?',
    ['a/temporary.txt', 'a/b/temp', 'tempa', 'a/temp/x'],
    ['temp', 'a/b/c/temp'],
  ],
  ['*.md\n!README.md', ['a.md'], ['README.md', 'd/a.md']],
  ['*.md\n!README*.md\nREADME-secret.md', ['README-secret.md', 'b.md'], ['README.md', 'README-a.md']],
  ['*.md\nREADME-secret.md\n!README*.md', ['b.md'], ['README-secret.md']],
  ['**/*.go', ['a.go', 'd/e/a.go'], ['a.gox']],
  ['foo/bar', ['foo/bar', 'foo/bar/x'], ['bar', 'x/foo/bar']],
  ['/foo/bar/', ['foo/bar', 'foo/bar/x'], ['x/foo/bar']],
  ['docs\n!docs/README.md', ['docs/a', 'docs/sub/README.md'], ['docs/README.md']],
  ['docs/\n!docs/README.md', ['docs/a'], ['docs/README.md']],
  ['docs/*\n!docs/README.md', ['docs/a'], ['docs/README.md']],
  ['**\n!util/docker/web', ['a', 'util/docker/x'], ['util/docker/web', 'util/docker/web/foo']],
  ['**\n!util/docker/web\nutil/docker/web/foo', ['util/docker/web/foo'], ['util/docker/web/bar']],
  ['*\n!keep', ['a', 'd/x'], ['keep', 'keep/x']],
  // BuildKit asks an exception for a directory only if something before it has ignored the directory.
  ['a/b\n!a', ['a/b', 'a/b/c'], ['a/c']],
  ['a\n!a', [], ['a', 'a/b']],
  ['!a.go\n*.go', ['a.go'], []],
  ['\u{feff}secret', ['secret'], []],
  ['\u{feff}# comment\nsecret', ['secret'], ['# comment']],
  ['a\r\nsecret\r\n', ['a', 'secret'], []],
  ['  secret  ', ['secret'], []],
  ['!  kept\n', [], ['kept']],
  ['**\n  ! kept ', ['a'], ['kept']],
  [' # no comment', ['# no comment'], []],
  ['\\#a', ['#a'], []],
  ['\\!a', ['!a'], ['a']],
  ['**secret', ['secret', 'my-secret', 'd/my-secret'], []],
  ['key[^0-9]', ['keys'], ['key1', 'key']],
  ['a\\*', ['a*'], ['ab']],
  ['./a/../secret/./b//c/', ['secret/b/c', 'secret/b/c/d'], ['a', 'secret']],
  ['../secret', [], ['secret']],
  ['/../secret', ['secret'], []],
  ['.', [], ['a', '.a']],
  ['/', [], ['a']],
  ['', [], ['a']],
  ['A', ['A'], ['a']],
];

test('rules of .dockerignore are as in Docker', () => {
  for (const [text, ignored, kept] of CASES) {
    const rules = parseIgnoreFile(text, '.dockerignore');
    for (const path of ignored)
      assert.equal(isIgnored(rules, path), true, `${JSON.stringify(text)}: ${path}`);
    for (const path of kept) assert.equal(isIgnored(rules, path), false, `${JSON.stringify(text)}: ${path}`);
  }
});

test('a line that is no rule is refused with its file and number', () => {
  for (const [text, message] of [
    ['a\n\n[\n', /^d\/\.dockerignore, line 3: "\[" is no pattern: .*lacks its "\]"/u],
    ['!\n', /^d\/\.dockerignore, line 1: "!" is no pattern: nothing follows the "!"$/u],
    ['a\n! /', /line 2: "! \/" is no pattern: nothing follows/u],
    ['x'.repeat((1 << 20) + 1), /^d\/\.dockerignore has more than 1048576 bytes$/u],
  ] as const)
    assert.throws(
      () => parseIgnoreFile(text, 'd/.dockerignore'),
      (error) => {
        assert.ok(error instanceof Failure);
        assert.match(error.message, message);
        return true;
      },
    );
});
