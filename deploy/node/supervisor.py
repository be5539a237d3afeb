"""Keeps a hospital's node running, and says how it stands.

One step a second: read the stop switch, look at the processes and at what the server last said to them, judge
(`watchdog`), start or end what must be, and write the state for the status page. It never reads an image, an update or
the ledger.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
import time
from collections.abc import Callable

from deploy.node.contact import read_contact
from deploy.node.pause import is_paused
from deploy.node.processes import Child, Kept, ProcessLog
from deploy.node.route import Probe, Prober
from deploy.node.settings import NodeSettings, versions
from deploy.node.state import NodeState, Phase, Restart, node_folder, server_certificate_path, write_state
from deploy.node.superexec import CLIENT_APP_COMMAND
from deploy.node.watchdog import Observation, Verdict, judge
from federation.durable import write_durably

_STEP_S = 1.0
_PROBE_EVERY_S = 30.0
_PROBE_SOON_S = 10.0
_WRITE_EVERY_S = 10.0
_WAITS_S = (1.0, 5.0, 15.0, 30.0, 60.0)
_STEADY_S = 300.0
_JUMP_S = 20.0
_CALM_S = 120.0
_CALM = Verdict(phase=Phase.CONNECTED, detail="This machine's clock was set; the server's next answer is awaited.")
_PAUSED = Verdict(
    phase=Phase.PAUSED, detail="This hospital has paused itself; `aegis status resume` lets it take part again."
)


class Supervisor:
    """The node's processes and what is known of them."""

    def __init__(self, settings: NodeSettings) -> None:
        """Start nothing yet."""
        self._settings = settings
        self._log = ProcessLog(node_folder(settings.state_dir) / "node.log")
        self._started = time.time()
        self._node: Child | None = None
        self._exec: Child | None = None
        self._busy = 0.0
        self._prober = Prober(settings.kit, settings.folder)
        self._probe: Probe | None = None
        self._restarts: list[Restart] = []
        self._failures, self._not_before = 0, 0.0
        self._heard = 0.0
        self._certificate = ""
        self._ahead, self._calm_until = time.time() - time.monotonic(), 0.0
        self._verdict = Verdict(phase=Phase.STARTING, detail="")
        self._since, self._written = self._started, 0.0
        self._versions = versions()

    def run(self, stop: threading.Event, beside: Kept | None = None) -> None:
        """Mind the node, and the process `beside` it, until `stop` is set, then end the node's processes."""
        self._settings.scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._settings.scratch / "flower").mkdir(exist_ok=True, mode=0o700)
        self._settings.contact_file.unlink(missing_ok=True)
        try:
            while not stop.is_set():
                self._step()
                if beside is not None:
                    beside.mind()
                stop.wait(_STEP_S)
        finally:
            self._end()
            self._tell(Verdict(phase=Phase.STOPPED, detail="The node was stopped."))

    def _step(self) -> None:
        if is_paused(self._settings.state_dir):
            self._end()
            self._tell(_PAUSED)
            return
        verdict = self._judge()
        if verdict.restart:
            self._note_restart(verdict.restart)
            self._end()
        elif not verdict.startable:
            self._end()
        elif self._node is None or not self._node.running:
            self._start_again()
        elif self._exec is None:
            self._exec = self._start("superexec", self._settings.superexec_command)
        elif not self._exec.running:
            self._give_up("The SuperExec ended; the node is started anew with it.")
        self._tell(verdict)

    def _judge(self) -> Verdict:
        """Return how the node stands; the clock may have been set back since anything was noted."""
        node, now = self._node, time.time()
        running = node is not None and node.running
        if self._exec is not None and self._exec.runs_below(CLIENT_APP_COMMAND):
            self._busy = now
        contact = read_contact(self._settings.contact_file)
        every = _PROBE_EVERY_S if self._verdict.phase is Phase.CONNECTED else _PROBE_SOON_S
        if self._probe is None or not 0 <= now - self._probe.time <= every:
            self._probe = self._prober.probe()
            self._keep_certificate(self._probe.certificate)
        started = now
        if node is not None:
            started = node.started = min(node.started, now)
        seen = Observation(
            now=now,
            running=running,
            started=started,
            busy=self._busy,
            contact=contact,
            probe=self._probe,
            failures=self._failures,
        )
        if running and now - started > _STEADY_S:
            self._failures = 0
        verdict, was_set = judge(seen), self._clock_was_set()
        return _CALM if verdict.restart and was_set else verdict

    def _clock_was_set(self) -> bool:
        """Return whether the clock jumped within the last two minutes: then silence is no reason to end a node."""
        ahead, steady = time.time() - time.monotonic(), time.monotonic()
        if abs(ahead - self._ahead) > _JUMP_S:
            self._ahead, self._calm_until = ahead, steady + _CALM_S
        return steady < self._calm_until

    def _keep_certificate(self, shown: str) -> None:
        """Keep the certificate that the server shows, for the page to tell when it ends."""
        if not shown or shown == self._certificate:
            return
        try:
            write_durably(server_certificate_path(self._settings.state_dir), shown.encode(), mode=0o600)
            self._certificate = shown
        except OSError as error:
            report("certificate-not-written", errno=error.errno)

    def _start_again(self) -> None:
        """Start the SuperNode, with pauses that grow while it keeps ending."""
        now = time.time()
        if self._node is not None:
            # Not its last words: they may be the server's, and this is shown on the page.
            self._give_up(f"The SuperNode ended with code {self._node.exit_code}; node.log has its last words.")
        if 0 < self._not_before - now <= _WAITS_S[-1]:
            return
        try:
            self._settings.contact_file.unlink(missing_ok=True)
            self._settings.secret_file.unlink(missing_ok=True)
            self._settings.secret_file.touch(mode=0o600)
            self._settings.secret_file.write_text(secrets.token_hex(32), encoding="ascii")
        except OSError as error:  # Without a secret nothing is started; the volume may have room again soon.
            report("secret-not-written", errno=error.errno)
            return
        self._node = self._start("supernode", self._settings.supernode_command)
        self._exec = None

    def _give_up(self, reason: str) -> None:
        """End what is left of a node that ended by itself; until the next one is started it takes longer each time."""
        self._note_restart(reason)
        self._end()
        self._not_before = time.time() + _WAITS_S[min(self._failures, len(_WAITS_S) - 1)]
        self._failures += 1

    def _start(self, name: str, command: Callable[[], list[str]]) -> Child:
        return Child(name, command(), self._settings.environment(), self._log)

    def _end(self) -> None:
        for child in (self._exec, self._node):
            if child is not None:
                child.stop()
        self._node = self._exec = None

    def _note_restart(self, reason: str) -> None:
        self._restarts.append(Restart(time=time.time(), reason=reason))
        del self._restarts[:-20]
        self._written = 0.0  # to be told at once
        report("restart", reason=reason)

    def _tell(self, verdict: Verdict) -> None:
        """Write the state where it changed, or where it was last written ten seconds ago; say changes of phase."""
        now = time.time()
        changed = verdict.phase is not self._verdict.phase
        if changed:
            self._since = now
            report("phase", phase=verdict.phase.value, detail=verdict.detail)
        if not changed and verdict.detail == self._verdict.detail and 0 <= now - self._written < _WRITE_EVERY_S:
            return
        self._verdict, self._written = verdict, now
        self._heard = read_contact(self._settings.contact_file).answered or self._heard
        state = NodeState(
            written=now,
            phase=verdict.phase,
            since=self._since,
            detail=verdict.detail,
            server=self._settings.kit.server,
            last_contact=self._heard or None,
            clock_skew_s=self._probe.clock_skew_s if self._probe else None,
            restarts=tuple(self._restarts),
            versions=self._versions,
            started=self._started,
        )
        try:
            write_state(self._settings.state_dir, state)
        except OSError as error:  # A full disk must not end the node: the ledger refuses what it cannot write.
            report("state-not-written", errno=error.errno)


def report(event: str, **fields: object) -> None:
    """Write one JSON line to this process's output: what a container's log shows; nothing derived from images."""
    sys.stdout.write(json.dumps({"time": round(time.time(), 3), "event": event, **fields}) + "\n")
    sys.stdout.flush()
