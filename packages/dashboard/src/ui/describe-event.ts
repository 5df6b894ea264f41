/** Events as sentences, for every page that lists them. Names in their data are those of guests and callers: text only. */
import type { BlockReason } from '../../../contract/src/network-policy/block-reason.ts';
import type { EventData, EventType } from '../../../contract/src/events/events.ts';
import type { StatusReason } from '../../../contract/src/sandbox/lifecycle.ts';
import type { EventInfo } from '../../../sdk/src/index.ts';
import type { Tone } from './Badge.tsx';
import {
  formatBytes,
  formatCents,
  formatDuration,
  formatImage,
  formatMiB,
  formatMoment,
  formatNumber,
} from './format.ts';
import type { IconName } from './Icon.tsx';

/** A piece of a sentence: words, or a name, which may lead to a page. */
export type SentencePart = string | { name: string; href?: string };

export interface EventDescription {
  icon: IconName;
  tone: Tone;
  sentence: readonly SentencePart[];
}

/** Data may come from a service of another version: a field can be missing. */
type Loose<T extends EventType> = Partial<EventData<T>>;
type Describe<T extends EventType> = (data: Loose<T>) => EventDescription;

const END_REASONS: Readonly<Record<StatusReason, string>> = {
  requested: 'a caller asked for it',
  idle_timeout: 'it was idle for its timeout',
  max_lifetime: 'it reached its maximum lifetime',
  expires_at: 'it reached the time that its creator set',
  guest_shutdown: 'it shut itself down',
  guest_panic: 'its kernel panicked',
  vm_lost: 'its virtual machine was lost',
  create_failed: 'it could not be created',
  control_restarted: 'the service restarted while it was being created',
};

const BLOCK_REASONS: Readonly<Record<BlockReason, string>> = {
  denied_by_rule: 'denied by a rule',
  not_allowed: 'not allowed by the policy',
  name_missing: 'the connection showed no name',
  name_hidden: 'the connection hid its name',
  name_invalid: 'the connection showed an invalid name',
  name_late: 'the connection showed its name too late',
  name_not_resolved: 'its name was not resolved to this address',
  private_address: 'a private address',
  host_address: 'an address of the host or of another sandbox',
  reserved_address: 'a reserved address',
  too_many_connections: 'too many connections',
  protocol_not_allowed: 'the protocol is not allowed',
  source_not_own: 'the source address is not that of the sandbox',
};

const DISABLED_REASONS: Readonly<Record<EventData<'webhook.disabled'>['reason'], string>> = {
  failing: 'all its deliveries failed for days',
  gone: 'its receiver answered that it is gone',
  backlog: 'too many deliveries waited',
};

const DESCRIPTIONS: { readonly [T in EventType]: Describe<T> } = {
  'sandbox.created': describeCreation,
  'sandbox.forked': ({ child }) => tell('fork', 'good', 'Forked', ': the child is ', sandboxName(child)),
  'sandbox.hibernated': () => tell('pause', 'calm', 'Hibernated'),
  'sandbox.resumed': () => tell('play', 'good', 'Resumed'),
  'sandbox.rolled_back': ({ snapshot_id }) =>
    tell('rewind', 'busy', 'Rolled back', ' to the snapshot ', snapshotName(snapshot_id)),
  'sandbox.destroyed': (data) => describeEnd('Destroyed', 'calm', data),
  'sandbox.failed': (data) => describeEnd('Failed', 'bad', data),
  'snapshot.created': ({ snapshot_id }) =>
    tell('snapshot', 'good', 'Snapshot taken', ': ', snapshotName(snapshot_id)),
  'snapshot.deleted': ({ snapshot_id }) =>
    tell('trash', 'calm', 'Snapshot deleted', ': ', plainName(snapshot_id)),
  'command.exited': describeCommand,
  'network.blocked': describeRefusals,
  'disk.created': ({ disk, size_gb }) =>
    tell('disk', 'good', 'Disk created', ': ', diskName(disk), ...gigabytes(size_gb)),
  'disk.attached': ({ disk, recovered }) =>
    tell(
      'disk',
      recovered === true ? 'warn' : 'good',
      'Disk attached',
      ': ',
      diskName(disk),
      ...loss(recovered),
    ),
  'disk.detached': ({ disk }) => tell('disk', 'calm', 'Disk detached', ': ', diskName(disk)),
  'disk.snapshot_created': ({ disk, snapshot }) =>
    tell('snapshot', 'good', 'Disk snapshot taken', ': ', plainName(snapshot), ' of ', diskName(disk)),
  'disk.deleted': ({ disk }) => tell('trash', 'calm', 'Disk deleted', ': ', plainName(disk)),
  'image.build_ended': describeBuild,
  'usage.billed': describeUsage,
  'credit.exhausted': () =>
    tell('alert', 'bad', 'Credit exhausted', ': running sandboxes will be hibernated'),
  'credit.restored': () => tell('check', 'good', 'Credit restored'),
  'budget.reached': describeBudget,
  'webhook.disabled': ({ webhook_id, reason }) =>
    tell(
      'hook',
      'warn',
      'Webhook disabled',
      ': ',
      webhookName(webhook_id),
      because(reason, DISABLED_REASONS),
    ),
};

/** Describes an event. The sentence of an unknown type, of a later service, is its type. */
export function describeEvent({ type, data }: Pick<EventInfo, 'type' | 'data'>): EventDescription {
  const describe = Object.hasOwn(DESCRIPTIONS, type)
    ? (DESCRIPTIONS[type as EventType] as (data: Readonly<Record<string, unknown>>) => EventDescription)
    : undefined;
  return describe?.(data) ?? tell('log', 'calm', type);
}

/** Returns the sentence as plain text, for labels and searches. */
export function toPlainSentence(sentence: readonly SentencePart[]): string {
  return sentence.map((part) => (typeof part === 'string' ? part : part.name)).join('');
}

function tell(icon: IconName, tone: Tone, ...sentence: readonly SentencePart[]): EventDescription {
  return { icon, tone, sentence };
}

function describeBudget({ percent, scope, cost_cents, month_cents, month }: Loose<'budget.reached'>) {
  const whose = scope === undefined ? '' : scope === 'organization' ? ' of the organization' : ' of a team';
  const part = percent === undefined ? 'reached' : `${formatNumber(percent)} % reached`;
  const amounts =
    cost_cents === undefined || month_cents === undefined
      ? ''
      : `, ${formatCents(cost_cents)} of ${formatCents(month_cents)}`;
  const when = month === undefined ? '' : ` in ${month}`;
  return tell(
    'alert',
    (percent ?? 0) >= 100 ? 'bad' : 'warn',
    'Budget',
    `${whose}: ${part}${when}${amounts}`,
  );
}

function describeCreation({ image, vcpus, mem_mib, parent, snapshot_id }: Loose<'sandbox.created'>) {
  const size =
    vcpus === undefined || mem_mib === undefined ? '' : `${count(vcpus, 'CPU')}, ${formatMiB(mem_mib)}`;
  const source =
    snapshot_id !== undefined
      ? [
          ' from the snapshot ',
          snapshotName(snapshot_id),
          ...(parent === undefined ? [] : [' of ', sandboxName(parent)]),
        ]
      : parent !== undefined
        ? [' as a fork of ', sandboxName(parent)]
        : [' from ', imageName(image)];
  return tell('plus', 'good', 'Created', ...source, size === '' ? '' : ` with ${size}`);
}

function describeEnd(verb: string, tone: Tone, data: Loose<'sandbox.destroyed'>): EventDescription {
  const { reason, uptime_ms, mem_peak_bytes } = data;
  const icon: IconName = tone === 'bad' ? 'alert' : 'trash';
  const uptime = typeof uptime_ms === 'number' ? ` It ran for ${formatDuration(uptime_ms)}` : '';
  const peak =
    uptime !== '' && typeof mem_peak_bytes === 'number'
      ? ` and used up to ${formatBytes(mem_peak_bytes)} of memory`
      : '';
  return tell(
    icon,
    tone,
    verb,
    `${because(reason, END_REASONS)}.${uptime}${peak}${uptime === '' ? '' : '.'}`,
  );
}

function describeCommand({ command_id, exit_code, duration_ms }: Loose<'command.exited'>): EventDescription {
  const outcome =
    typeof exit_code === 'number' ? ` with code ${exit_code}` : ', but its exit code was not observed';
  const time = typeof duration_ms === 'number' ? ` after ${formatDuration(duration_ms)}` : '';
  const tone: Tone = exit_code === 0 ? 'good' : typeof exit_code === 'number' ? 'bad' : 'warn';
  return tell('terminal', tone, 'Command ended', `${outcome}${time}: `, plainName(command_id));
}

function describeRefusals({ count: total, refusals }: Loose<'network.blocked'>): EventDescription {
  const [first, ...others] = Array.isArray(refusals) ? refusals : [];
  const amount = typeof total === 'number' ? count(total, 'connection') : 'Connections';
  if (first === undefined) return tell('network', 'warn', 'Network', `: ${amount} refused`);
  const target = first.domain ?? first.ip ?? 'an unknown target';
  const port = typeof first.port === 'number' ? `:${first.port}` : '';
  const reason = wordsOf(first.reason, BLOCK_REASONS);
  const rest = others.length === 0 ? '' : ` and ${count(others.length, 'other kind')}`;
  return tell(
    'network',
    'warn',
    'Network',
    `: ${amount} refused, to `,
    { name: target + port },
    ` (${reason})${rest}`,
  );
}

function describeBuild({ image, build_id, status, error }: Loose<'image.build_ended'>): EventDescription {
  const href = build_id === undefined ? undefined : `/images/builds/${encodeURIComponent(build_id)}`;
  const name = { name: text(image), ...(href === undefined ? {} : { href }) };
  if (status === 'done') return tell('layers', 'good', 'Image built', ': ', name);
  if (status === 'cancelled') return tell('layers', 'calm', 'Image build cancelled', ': ', name);
  const why = typeof error === 'string' ? ` (${error.replaceAll('_', ' ')})` : '';
  return tell('layers', 'bad', 'Image build failed', ': ', name, why);
}

function describeUsage({ started_at, ended_at, vcpus, mem_mib }: Loose<'usage.billed'>): EventDescription {
  const ms = Date.parse(ended_at ?? '') - Date.parse(started_at ?? '');
  if (started_at === undefined || Number.isNaN(ms)) return tell('clock', 'calm', 'Usage billed');
  const size =
    vcpus === undefined || mem_mib === undefined ? '' : ` with ${count(vcpus, 'CPU')}, ${formatMiB(mem_mib)}`;
  return tell(
    'clock',
    'calm',
    'Usage billed',
    `: ${formatDuration(ms)} from ${formatMoment(started_at)}${size}`,
  );
}

function because(reason: string | undefined, words: Readonly<Record<string, string>>): string {
  return reason === undefined ? '' : ` because ${wordsOf(reason, words)}`;
}

/** A reason of a later service has no words here. */
function wordsOf(reason: string, words: Readonly<Record<string, string>>): string {
  return (Object.hasOwn(words, reason) ? words[reason] : undefined) ?? reason.replaceAll('_', ' ');
}

function count(value: number, unit: string): string {
  return `${formatNumber(value)} ${unit}${value === 1 || unit === 'CPU' ? '' : 's'}`;
}

function gigabytes(sizeGb: number | undefined): readonly string[] {
  return sizeGb === undefined ? [] : [` with ${formatNumber(sizeGb)} GiB`];
}

function loss(isRecovered: boolean | undefined): readonly string[] {
  return isRecovered === true ? ['. The last writes of an earlier sandbox were lost'] : [];
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : 'unknown';
}

function plainName(value: unknown): SentencePart {
  return { name: text(value) };
}

/** The raw data has the whole digest. */
function imageName(image: unknown): SentencePart {
  return { name: formatImage(text(image)) };
}

function sandboxName(id: unknown): SentencePart {
  return linked(id, '/sandboxes/');
}

function snapshotName(id: unknown): SentencePart {
  return linked(id, '/snapshots?q=');
}

function diskName(name: unknown): SentencePart {
  return linked(name, '/disks/');
}

function webhookName(id: unknown): SentencePart {
  return linked(id, '/webhooks/');
}

function linked(value: unknown, base: string): SentencePart {
  return typeof value === 'string'
    ? { name: value, href: base + encodeURIComponent(value) }
    : plainName(value);
}
