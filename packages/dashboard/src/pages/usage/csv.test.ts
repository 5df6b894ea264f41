import assert from 'node:assert/strict';
import { test } from 'node:test';
import { writeCsv } from './csv.ts';
import { joinLines } from './statement-costs.ts';
import { writeStatement } from './statement-csv.ts';

test('cells with commas, quotes and line ends are quoted', () => {
  assert.equal(writeCsv([['a,b', 'say "x"', 'two\nlines', 1.5]]), '"a,b","say ""x""","two\nlines",1.5\r\n');
});

test('a text that a spreadsheet would run is disarmed, a number is not', () => {
  const bad = ['=1+1', '+1', '-1', '@SUM(A1)', '\tx', '\r=1'];
  assert.equal(writeCsv([[...bad, -1]]), `'=1+1,'+1,'-1,'@SUM(A1),'\tx,"'\r=1",-1\r\n`);
});

test('a statement has a row for each sandbox and each disk, with exact costs', () => {
  const lines = joinLines(
    [
      {
        sandboxId: 'run1',
        teamId: 'team1',
        image: '=cmd',
        vcpus: 1,
        memMiB: 1024,
        billedMs: 900_000,
        costCents: 1,
      },
    ],
    [
      {
        id: 'run1',
        name: '@name',
        createdAt: '2026-11-01T00:00:00.000Z',
        endedAt: null,
        labels: { job: 'a,b' },
      },
    ],
  );
  const disks = [{ disk: '-data', teamId: 'team1', gbHours: 2, costCents: 0.05 }];
  assert.deepEqual(writeStatement({ disks }, lines).split('\r\n').slice(1), [
    `sandbox,run1,'@name,team1,'=cmd,1,1024,900000,,"job=a,b",1.000000000000`,
    `disk,'-data,,team1,,,,,2,,0.050000000000`,
    '',
  ]);
});
