import type { Accelerator } from '../../lib/protocol/runner-protocol.ts';

const EMULATED_WORDS = [
  'mitigations=off',
  'nokaslr',
  'init_on_alloc=0',
  'hardened_usercopy=off',
  'randomize_kstack_offset=off',
  'cryptomgr.notests',
  // Debian's list without what does nothing before it is given a policy: guests come without one.
  'lsm=landlock,yama',
];

/** `tscKhz` matters under emulation only: with KVM the guest has a clock of the host's. */
export function kernelCommandLine(accelerator: Accelerator, tscKhz?: number): string {
  const words = [
    'console=ttyS0',
    'quiet',
    'panic=-1',
    'reboot=t',
    'net.ifnames=0',
    'cgroup_no_v1=all',
    'no_timer_check',
    'tsc=reliable',
    'rcupdate.rcu_expedited=1',
    'random.trust_cpu=on',
    '8250.nr_uarts=1',
  ];
  // Under emulation there is no speculation to mitigate, and what the checks of a kernel that hardens or tests itself cost
  // is paid many times over.
  if (accelerator === 'tcg') words.push(...EMULATED_WORDS);
  if (accelerator === 'tcg' && tscKhz !== undefined) words.push(`tsc_early_khz=${tscKhz}`);
  return words.join(' ');
}
