/**
 * Node's reporter `spec`, with the reason of each failure where it happens. `spec` itself prints reasons only after the
 * last test, where they are hard to find in a long log.
 */
import { spec as SpecReporter } from 'node:test/reporters';
import { kindOf, reasonOf } from './event-reporter.mjs';

/** @param {AsyncIterable<import('./event-reporter.mjs').NodeEvent>} source */
async function* report(source) {
  const spec = new SpecReporter();
  spec.setEncoding('utf8');
  const take = () => /** @type {string | null} */ (spec.read()) ?? '';
  for await (const event of source) {
    spec.write(event);
    yield take();
    const { type, data } = event;
    if (kindOf(type, data) === 'fail')
      yield `!!! ${data.name}\n${reasonOf(data).replaceAll(/^/gmu, '    ')}\n`;
  }
  spec.end();
  for await (const rest of spec) yield rest;
}

// oxlint-disable-next-line import/no-default-export -- Node loads a reporter by its default export
export default report;
