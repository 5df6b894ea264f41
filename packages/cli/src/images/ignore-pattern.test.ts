import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { IgnorePattern, PatternError } from './ignore-pattern.ts';

const matches = (pattern: string, path: string): boolean =>
  new IgnorePattern(pattern).matches(Array.from(path));

/** From the documentation of Go's filepath.Match, of Docker's .dockerignore, and the tests of moby/patternmatcher. */
const CASES: [pattern: string, matching: string[], others: string[]][] = [
  ['abc', ['abc'], ['ab', 'abcd', 'x/abc', 'abc/d']],
  ['*', ['abc', '.abc'], ['ab/c']],
  ['*c', ['abc', 'c'], ['ab/c', 'cd']],
  ['a*', ['a', 'abc'], ['ba']],
  ['a*/b', ['abc/b', 'a/b'], ['a/c/b']],
  ['a*b*c*d*e*/f', ['axbxcxdxe/f', 'axbxcxdxexxx/f'], ['axbxcxdxe/xxx/f', 'axbxcxdxexxx/fff']],
  ['a*b?c*x', ['abxbbxdbxebxczzx'], ['abxbbxdbxebxczzy']],
  ['a?b', ['axb', 'a☺b', 'a😀b'], ['ab', 'a/b', 'axxb']],
  ['ab[c]', ['abc'], ['abd', 'ab']],
  ['ab[b-d]', ['abb', 'abc', 'abd'], ['aba', 'abe']],
  ['ab[^b-d]', ['aba', 'abe'], ['abb', 'abc', 'ab']],
  ['a[^a]b', ['a☺b', 'a/b'], ['aab']],
  ['[a-ζ]*', ['α'], ['A']],
  ['[!a]', ['!', 'a'], ['b']],
  ['[\\]a]', [']', 'a'], ['\\']],
  ['[x\\-]', ['x', '-'], ['y']],
  ['[*?]', ['*', '?'], ['a']],
  ['a\\*b', ['a*b'], ['ab', 'axb', 'a\\*b']],
  ['\\[a]', ['[a]'], ['a']],
  ['a\\\\', ['a\\'], ['a']],
  ['\\d', ['d'], ['1']],
  ['a.|)$(}+{bc', ['a.|)$(}+{bc'], ['abc']],
  ['abc.def', ['abc.def'], ['abcZdef']],
  ['a^b', ['a^b'], ['ab']],
  ['**', ['file', 'dir/file', '.a/b'], []],
  ['**/**', ['file', 'dir/file'], []],
  ['dir/**', ['dir/file', 'dir/dir2/file'], ['dir', 'dirx/file']],
  ['a**', ['a', 'ab', 'ab/c/d'], ['ba']],
  ['**/dir', ['dir', 'a/dir', 'a/b/dir'], ['adir', 'dir/file', 'a/dirb']],
  ['**file', ['file', 'myfile', 'dir/myfile', 'dir/dir/file'], ['filed']],
  ['**file*', ['file', 'filed', 'dir/file.txt'], ['myfile', 'dir/myfile']],
  ['**/.foo', ['.foo', 'bar/.foo'], ['bar.foo']],
  ['**/dir2/*', ['dir/dir2/file', 'dir2/file'], ['dir/dir2/a/b']],
  ['**/dir2/**', ['dir/dir2/dir3/file', 'dir2/x'], ['dir2']],
  ['**/*.txt', ['file.txt', 'dir/dir/file.txt'], ['file.txt2']],
  ['**/**/*.txt', ['file.txt', 'dir/dir/file.txt'], ['dir/txt']],
  ['a/**/z', ['a/z', 'a/b/c/z'], ['z', 'a/zz', 'a/b/z/c']],
  ['a**/*.txt', ['a/file.txt', 'a/dir/dir/file.txt', 'ax/file.txt'], ['b/a/file.txt']],
  ['a/*.txt**', ['a/file.txt', 'a/file.txt.d/x'], ['a/b/file.txt']],
];

test('patterns match as in Docker', () => {
  for (const [pattern, matching, others] of CASES) {
    for (const path of matching) assert.equal(matches(pattern, path), true, `${pattern} and ${path}`);
    for (const path of others) assert.equal(matches(pattern, path), false, `${pattern} and ${path}`);
  }
});

test('a text that is no pattern is refused with what to write', () => {
  for (const [text, message] of [
    ['[', /lacks its "\]"; write \\\[/u],
    ['a/[^', /lacks its/u],
    ['[^bc', /lacks its/u],
    ['[a\\]', /lacks its/u],
    ['*x[', /lacks its/u],
    ['[]a]', /"\]" within \[…\] needs a backslash/u],
    ['[-]', /"-" within/u],
    ['[x-]', /"\]" within/u],
    ['[a-b-c]', /"-" within/u],
    ['[z-a]', /range z-a is the wrong way round/u],
    ['a\\', /nothing follows the last backslash/u],
  ] as const)
    assert.throws(
      () => new IgnorePattern(text),
      (error) => {
        assert.ok(error instanceof PatternError, text);
        assert.match(error.message, message, text);
        return true;
      },
    );
});

test('a pattern with many stars takes no exponential time', () => {
  const path = Array.from('a/'.repeat(1500));
  for (const pattern of ['**/a*'.repeat(100), '*a'.repeat(200), '**a'.repeat(200)]) {
    const startedAtMs = performance.now();
    assert.equal(new IgnorePattern(`${pattern}x`).matches(path), false);
    assert.ok(performance.now() - startedAtMs < 5000, pattern.slice(0, 10));
  }
});

const name = fc.string({
  unit: fc.constantFrom('a', 'b', '*', '?', '[', '\\', '.', '+'),
  minLength: 1,
  maxLength: 3,
});
const somePath = fc.array(name, { minLength: 1, maxLength: 4 }).map((names) => names.join('/'));

test('a path whose special characters are escaped matches itself alone', () => {
  fc.assert(
    fc.property(somePath, somePath, (path, other) => {
      const pattern = path.replaceAll(/[*?[\\]/gu, String.raw`\$&`);
      assert.equal(matches(pattern, path), true);
      assert.equal(matches(pattern, other), other === path);
    }),
  );
});

test('below a directory in which nothing may match, nothing matches', () => {
  const atom = fc.constantFrom('a', 'b', '*', '**', '**/', '/', '?', '[ab]');
  const somePattern = fc.array(atom, { minLength: 1, maxLength: 6 }).map((atoms) => atoms.join(''));
  const place = fc.string({ unit: fc.constantFrom('a', 'b', '/'), minLength: 1, maxLength: 5 });
  fc.assert(
    fc.property(somePattern, place, place, (text, directory, below) => {
      const pattern = new IgnorePattern(text);
      const isMatch = pattern.matches(Array.from(`${directory}/${below}`));
      if (isMatch) assert.equal(pattern.mayMatchBelow(Array.from(`${directory}/`)), true);
    }),
  );
  const rest = new IgnorePattern('src/*/kept');
  assert.deepEqual(
    ['src', 'src/a', 'lib', 'src/a/b'].map((path) => rest.mayMatchBelow(Array.from(`${path}/`))),
    [true, true, false, false],
  );
});
