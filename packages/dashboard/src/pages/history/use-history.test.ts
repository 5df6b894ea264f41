import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Coppice, HistoryOptions } from '../../../../sdk/src/index.ts';
import { PagedList } from '../../../../sdk/src/transport/paged-list.ts';
import { HistoryList, type HistoryFilter } from './use-history.ts';

interface Entry {
  id: string;
}

const ALL: HistoryFilter = { status: 'all', labels: {} };
const entriesOf = (...ids: string[]): Entry[] => ids.map((id) => ({ id }));

/** A service whose history has these pages. */
class FakeHistory {
  pages: (Entry[] | Error)[];
  readonly asked: HistoryOptions[] = [];

  constructor(...pages: (Entry[] | Error)[]) {
    this.pages = pages;
  }

  readonly client = {
    history: (options: HistoryOptions) => {
      this.asked.push(options);
      const { pages } = this;
      return new PagedList<Entry>({
        firstQuery: '0',
        limit: options.limit,
        fetchPage: async (query) => {
          const page = pages[Number(query)] ?? [];
          if (page instanceof Error) throw page;
          const next = Number(query) + 1;
          return { items: page, nextQuery: next < pages.length ? String(next) : undefined };
        },
      });
    },
  } as unknown as Coppice;
}

const idsOf = (list: HistoryList): string[] | undefined => list.entries.value?.map(({ id }) => id);

test('pages are added one by one, and the last one is known as such', async () => {
  const list = new HistoryList(new FakeHistory(entriesOf('d', 'c'), entriesOf('b')).client, ALL);
  await list.loadMore();
  assert.deepEqual([idsOf(list), list.hasMore.value], [['d', 'c'], true]);
  await list.loadMore();
  assert.deepEqual([idsOf(list), list.hasMore.value], [['d', 'c', 'b'], false]);
});

test('a history without entries is an empty list', async () => {
  const list = new HistoryList(new FakeHistory().client, ALL);
  await list.loadMore();
  assert.deepEqual([idsOf(list), list.hasMore.value, list.isLoading.value], [[], false, false]);
});

test('those that have ended since come on top, and too many of them begin the list anew', async () => {
  const history = new FakeHistory(entriesOf('b', 'a'));
  const list = new HistoryList(history.client, ALL);
  await list.loadMore();
  history.pages = [entriesOf('c', 'b', 'a')];
  await list.loadNewest();
  assert.deepEqual(idsOf(list), ['c', 'b', 'a']);
  history.pages = [entriesOf('z', 'y'), entriesOf('x')];
  await list.loadNewest();
  assert.deepEqual([idsOf(list), list.hasMore.value], [['z', 'y'], true]);
});

test('a failure keeps what was read, and reading again begins anew', async () => {
  const history = new FakeHistory(entriesOf('b'), new Error('it is away'));
  const list = new HistoryList(history.client, ALL);
  await list.loadMore();
  assert.deepEqual(idsOf(list), ['b']);
  assert.match(String(list.error.value), /it is away/u);
  history.pages = [entriesOf('b'), entriesOf('a')];
  await list.reload();
  assert.deepEqual([idsOf(list), list.error.value], [['b'], undefined]);
});

test('the filter is sent, without a state for all', async () => {
  const history = new FakeHistory([]);
  await new HistoryList(history.client, { status: 'failed', labels: { job: 'x' } }).loadMore();
  await new HistoryList(history.client, ALL).loadMore();
  assert.deepEqual(
    history.asked.map(({ status, labels }) => ({ status, labels })),
    [
      { status: 'failed', labels: { job: 'x' } },
      { status: undefined, labels: {} },
    ],
  );
});
