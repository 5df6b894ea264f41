import { useSignal } from '@preact/signals';
import { SelectField, TextField } from '../../ui/Field.tsx';
import { Icon, type IconName } from '../../ui/Icon.tsx';
import type { PolicyModule } from './load-policy-check.ts';
import type { CheckedPolicy } from './policy-check.ts';
import { guessProtocol, readDestination, type Protocol, type ReadDestination } from './read-target.ts';
import type { TestResult } from './test-destination.ts';

const DEFAULT_PORT = 443;

const PROTOCOLS: readonly (readonly [Protocol, string])[] = [
  ['tls', 'HTTPS or other TLS'],
  ['http', 'HTTP'],
  ['other', 'Other TCP, such as SSH'],
  ['udp', 'UDP or ping'],
];

const VERDICTS: Readonly<Record<TestResult['verdict'], { title: string; tone: string; icon: IconName }>> = {
  allow: { title: 'Allowed', tone: 'good', icon: 'check' },
  refuse: { title: 'Refused', tone: 'bad', icon: 'close' },
  depends: { title: 'It depends', tone: 'warn', icon: 'alert' },
};

/** Tries a connection under a policy, in the browser, with the code that judges connections of sandboxes. */
export function PolicyTester({ module, checked }: { module: PolicyModule; checked: CheckedPolicy }) {
  const text = useSignal('');
  const port = useSignal('');
  const address = useSignal('');
  /** Chosen by hand; undefined: what the port usually has. */
  const chosen = useSignal<Protocol | undefined>(undefined);
  const read = readDestination(text.value);
  const portNumber = port.value === '' ? (read?.port ?? DEFAULT_PORT) : Number(port.value);
  const protocol = chosen.value ?? guessProtocol(portNumber);
  return (
    <section class="tester" aria-label="Tester">
      <h3>Try a connection</h3>
      <div class="tester-fields">
        <TextField
          label="Destination"
          value={text.value}
          onValue={(value) => (text.value = value)}
          attributes={{ placeholder: 'Host name, address or URL', inputMode: 'url' }}
        />
        <TextField
          label="Port"
          value={port.value}
          onValue={(value) => (port.value = value)}
          attributes={{ type: 'number', min: 1, max: 65_535, placeholder: String(portNumber) }}
        />
        <SelectField
          label="Protocol"
          value={protocol}
          options={PROTOCOLS}
          onValue={(value) => (chosen.value = value as Protocol)}
        />
        {read !== undefined && !read.isAddress && (
          <TextField
            label="Address of the name"
            isOptional
            value={address.value}
            onValue={(value) => (address.value = value)}
            attributes={{ placeholder: 'as it resolves' }}
          />
        )}
      </div>
      <Result
        module={module}
        checked={checked}
        read={read}
        address={address.value.trim()}
        protocol={protocol}
      />
    </section>
  );
}

interface ResultProps {
  module: PolicyModule;
  checked: CheckedPolicy;
  read: ReadDestination | undefined;
  address: string;
  protocol: Protocol;
}

function Result({ module, checked, read, address, protocol }: ResultProps) {
  if (checked.compiled === undefined) return <p class="hint">Correct the rules to try connections.</p>;
  if (read === undefined)
    return (
      <p class="hint">
        The browser judges as the service does. Policies do not look at ports; a port only shows which
        protocol to expect.
      </p>
    );
  const fault = findFault(module, read, address);
  if (fault !== undefined) return <p class="fault">{fault}</p>;
  const target = read.isAddress
    ? { address: read.host, protocol }
    : { name: read.host, address: address === '' ? undefined : address, protocol };
  const { verdict, reason, rule, code } = module.testDestination(checked, target);
  const { title, tone, icon } = VERDICTS[verdict];
  return (
    <div class={`verdict ${tone}`} role="status">
      <Icon name={icon} />
      <div>
        <b>{title}</b>
        {rule !== undefined && (
          <>
            {' by '}
            <code>
              {rule.list}[{rule.index}]
            </code>{' '}
            <code class="rule">{rule.text}</code>
          </>
        )}
        <p>{reason}</p>
        {code !== undefined && (
          <p class="verdict-code">
            In the audit log: <code>{code}</code>
          </p>
        )}
      </div>
    </div>
  );
}

function findFault(
  module: PolicyModule,
  { host, isAddress }: ReadDestination,
  address: string,
): string | undefined {
  if (isAddress && module.findAddressKind(host) === undefined) return `${host} is not an IP address.`;
  if (!isAddress && address !== '' && module.findAddressKind(address) === undefined)
    return `${address} is not an IP address.`;
  return undefined;
}
