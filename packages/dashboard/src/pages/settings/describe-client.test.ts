import assert from 'node:assert/strict';
import { test } from 'node:test';
import { describeClient } from './describe-client.ts';

test('a client is named by its browser and system, or by its program', () => {
  const cases: readonly (readonly [string, string])[] = [
    [
      'Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36',
      'Chrome on Linux',
    ],
    [
      'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36 Edg/142.0.0.0',
      'Edge on Windows',
    ],
    [
      'Mozilla/5.0 (iPhone; CPU iPhone OS 19_0 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/19.0 Mobile/15E148 Safari/604.1',
      'Safari on iOS',
    ],
    [
      'Mozilla/5.0 (Macintosh; Intel Mac OS X 14.0; rv:140.0) Gecko/20100101 Firefox/140.0',
      'Firefox on macOS',
    ],
    ['curl/8.5.0', 'curl 8.5.0'],
    ['robot of someone', 'robot'],
    ['', 'Unknown client'],
  ];
  for (const [agent, text] of cases) assert.equal(describeClient(agent), text);
});
