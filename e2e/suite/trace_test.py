"""Self-tests of the trace check: traces that obey CSI's order, and one for each way of breaking it."""

from __future__ import annotations

from .calls import ATTACH, CREATE, DELETE, DETACH, PUBLISH, STAGE, UNPUBLISH, UNSTAGE, WHO
from .trace import LOST, REBOOT, ROLLED, check
from .trace_cases import T1, T2, TraceCase


class TraceTest(TraceCase):
    # Good ones.

    def test_a_whole_life(self) -> None:
        self.trace.call(CREATE, volume="", name="pv")
        self.trace.run(ATTACH, STAGE, PUBLISH, UNPUBLISH, UNSTAGE, DETACH, DELETE)
        self.good()

    def test_two_targets_share_a_stage(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.trace.call(PUBLISH, target=T2)
        self.trace.run(UNPUBLISH)
        self.trace.call(UNPUBLISH, target=T2)
        self.trace.run(UNSTAGE, DETACH)
        self.good()

    def test_failures_are_repeated_or_reversed(self) -> None:
        self.trace.call(ATTACH, "Internal")
        self.trace.run(ATTACH)
        self.trace.call(STAGE, "DeadlineExceeded")
        self.trace.call(STAGE, "Unavailable")
        self.trace.call(UNSTAGE, "Aborted")
        self.trace.run(UNSTAGE, DETACH)
        self.good()

    def test_a_refused_stage_is_given_up_without_its_inverse(self) -> None:
        self.trace.run(ATTACH)
        self.trace.call(STAGE, "DeadlineExceeded")
        self.trace.call(STAGE, "Internal")
        self.trace.run(DETACH)
        self.good()

    def test_a_second_life_elsewhere_in_the_same_trace(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH, UNPUBLISH, UNSTAGE, DETACH)
        other = {"node": "node-2"}
        self.trace.call(ATTACH, **other)
        for rpc in (STAGE, PUBLISH, UNPUBLISH, UNSTAGE):
            self.trace.call(rpc, server="node-2", staging="" if rpc == UNPUBLISH else "/other")
        self.trace.call(DETACH, **other)
        self.good()

    def test_several_nodes_at_once(self) -> None:
        self.trace.run(ATTACH)
        self.trace.call(ATTACH, node="node-2")
        here = self.trace.begin(STAGE)
        there = self.trace.begin(STAGE, server="node-2")
        self.trace.end(there)
        self.trace.end(here)
        self.good(finished=False)

    def test_a_killed_driver(self) -> None:
        self.trace.run(ATTACH)
        self.trace.begin(STAGE)
        self.trace.kill("loop-driver")
        self.trace.run(STAGE, PUBLISH, UNPUBLISH, UNSTAGE, DETACH)
        self.good()

    def test_a_killed_agent_repeats_what_it_did_not_hear(self) -> None:
        self.trace.run(ATTACH)
        unheard = self.trace.begin(STAGE)
        self.trace.kill("agent")
        again = self.trace.begin(STAGE)
        self.trace.end(unheard)
        self.trace.end(again)
        self.trace.run(PUBLISH)
        self.trace.kill("agent")
        self.trace.run(PUBLISH, UNPUBLISH, UNSTAGE, DETACH)
        self.good()

    def test_a_rolled_agent_has_heard_its_answers_and_the_next_one_asks_again(self) -> None:
        self.trace.kill(ROLLED)
        self.trace.run(ATTACH, STAGE)
        self.trace.call(WHO, volume="")
        self.trace.run(STAGE, PUBLISH, UNPUBLISH, UNSTAGE, DETACH)
        self.good()

    def test_a_rolled_agent_repeats_nothing_itself(self) -> None:
        self.trace.kill(ROLLED)
        self.trace.run(ATTACH)
        self.trace.call(WHO, volume="")
        self.trace.run(STAGE, STAGE)
        self.bad("had succeeded, and nothing was killed since", finished=False)

    def test_a_killed_agent_may_undo_what_never_reached_the_driver(self) -> None:
        self.trace.run(ATTACH)
        self.trace.kill("agent")
        self.trace.run(UNSTAGE, DETACH)
        self.good()

    def reboot(self, node: str = "node-1") -> None:
        for role in ("agent", "loop-driver", REBOOT):
            self.trace.kill(role, node)

    def test_a_reboot(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.reboot()
        self.trace.run(STAGE, PUBLISH)
        self.reboot()
        self.trace.run(UNPUBLISH, UNSTAGE, DETACH)
        self.good()

    def test_a_reboot_during_a_call(self) -> None:
        self.trace.run(ATTACH)
        self.trace.begin(STAGE)
        self.reboot()
        self.trace.run(UNSTAGE, DETACH)
        self.good()

    def test_a_lost_node_is_detached_and_cleans_up_later(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.reboot()
        self.trace.kill(LOST)
        self.trace.run(DETACH)
        self.trace.call(ATTACH, node="node-2")
        self.trace.run(UNPUBLISH, UNSTAGE)
        self.trace.call(DETACH, node="node-2")
        self.trace.run(DELETE)
        self.good()

    def test_a_lost_node_cleans_up_after_its_volume_is_gone(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.trace.kill(LOST)
        self.trace.run(DETACH, DELETE, UNPUBLISH, UNSTAGE)
        self.good()

    def test_a_lost_node_makes_nothing_of_a_volume_that_is_gone(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST)
        self.trace.run(DETACH, DELETE, PUBLISH)
        self.bad("the volume has been deleted", finished=False)

    def test_a_provoked_refusal(self) -> None:
        self.trace.call(ATTACH, "FailedPrecondition")
        self.trace.run(ATTACH, DETACH)
        self.assertEqual(check(self.trace.calls, tolerated={"FailedPrecondition"}), [])
        self.bad("was refused with FailedPrecondition")

    # Bad ones.

    def test_stage_before_attach(self) -> None:
        self.trace.run(STAGE)
        self.bad("came before ControllerPublishVolume")

    def test_stage_while_attaching(self) -> None:
        attach = self.trace.begin(ATTACH)
        self.trace.run(STAGE)
        self.trace.end(attach)
        self.bad("came before ControllerPublishVolume had succeeded")

    def test_stage_after_a_failed_attach(self) -> None:
        self.trace.call(ATTACH, "Internal")
        self.trace.run(STAGE)
        self.bad("came before ControllerPublishVolume had succeeded")

    def test_publish_before_stage(self) -> None:
        self.trace.run(ATTACH, PUBLISH)
        self.bad("came before NodeStageVolume")

    def test_publish_after_an_answer_that_nobody_heard(self) -> None:
        self.trace.run(ATTACH)
        unheard = self.trace.begin(STAGE)
        self.trace.kill("agent")
        self.trace.end(unheard)
        self.trace.run(PUBLISH)
        self.bad("came before NodeStageVolume had succeeded")

    def test_publish_after_a_reboot(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.reboot()
        self.trace.run(PUBLISH)
        self.bad("came before NodeStageVolume had succeeded")

    def test_detach_after_a_reboot(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.reboot()
        self.trace.run(DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")
        self.bad(f"came before NodeUnpublishVolume of {T1} had succeeded")

    def test_publish_after_another_nodes_reboot(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.reboot("node-2")
        self.trace.run(PUBLISH, UNPUBLISH, UNSTAGE, DETACH)
        self.good()

    def test_a_lost_node_that_never_cleans_up(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST)
        self.trace.run(DETACH)
        self.bad("left staged")

    def test_a_volume_alone_is_lost_on_a_node(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST, volume="v")
        self.trace.run(DETACH, UNSTAGE)
        self.good()

    def test_another_volume_is_lost_on_the_node(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST, volume="w")
        self.trace.run(DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_another_node_was_lost(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST, "node-2")
        self.trace.run(DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_staged_anew_before_the_lost_stage_was_undone(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST)
        self.trace.run(DETACH, ATTACH)
        self.trace.call(STAGE, staging="/other")
        self.bad("names the staging path '/other'", finished=False)

    def test_a_node_that_came_back_clean_is_like_any_other(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.kill(LOST)
        self.trace.run(DETACH, UNSTAGE, ATTACH, STAGE, DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded", finished=False)

    def test_unstage_with_a_live_target(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH, UNSTAGE)
        self.bad(f"came before NodeUnpublishVolume of {T1} had succeeded")

    def test_unstage_after_a_failed_unpublish(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.trace.call(UNPUBLISH, "Internal")
        self.trace.run(UNSTAGE)
        self.bad("NodeUnpublishVolume")

    def test_detach_while_staged(self) -> None:
        self.trace.run(ATTACH, STAGE, DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_unstage_after_a_refused_stage(self) -> None:
        self.trace.run(ATTACH)
        self.trace.call(STAGE, "Internal")
        self.trace.run(UNSTAGE)
        self.bad("undoes what was never done")

    def test_detach_after_a_stage_of_unknown_outcome(self) -> None:
        self.trace.run(ATTACH)
        self.trace.call(STAGE, "DeadlineExceeded")
        self.trace.run(DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_detach_after_a_failed_unstage(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.call(UNSTAGE, "Internal")
        self.trace.run(DETACH)
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_detach_of_all_nodes_while_one_has_it(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.call(DETACH, node="")
        self.bad("came before NodeUnstageVolume on node-1 had succeeded")

    def test_delete_while_attached(self) -> None:
        self.trace.run(ATTACH, DELETE)
        self.bad("came while the volume was still on node-1")

    def test_use_after_delete(self) -> None:
        self.trace.run(DELETE, ATTACH)
        self.bad("the volume has been deleted")

    def test_two_calls_in_flight_on_the_controller_side(self) -> None:
        attach = self.trace.begin(ATTACH)
        other = self.trace.begin(ATTACH, node="node-2")
        self.trace.end(attach)
        self.trace.end(other)
        self.bad("was in flight", finished=False)

    def test_two_calls_in_flight_on_a_node(self) -> None:
        self.trace.run(ATTACH, STAGE)
        one = self.trace.begin(PUBLISH)
        two = self.trace.begin(PUBLISH, target=T2)
        self.trace.end(one)
        self.trace.end(two)
        self.bad("was in flight", finished=False)

    def test_another_nodes_agent_was_killed(self) -> None:
        self.trace.run(ATTACH)
        stage = self.trace.begin(STAGE)
        self.trace.kill("agent", "node-2")
        again = self.trace.begin(STAGE)
        self.trace.end(stage)
        self.trace.end(again)
        self.bad("was in flight", finished=False)

    def test_repeats_with_other_arguments(self) -> None:
        self.trace.call(ATTACH, "Internal")
        self.trace.call(ATTACH, readonly=True)
        self.bad("readonly False then True", finished=False)

    def test_another_staging_path(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.call(PUBLISH, staging="/elsewhere")
        self.bad("names the staging path '/elsewhere'", finished=False)

    def test_a_success_is_repeated(self) -> None:
        self.trace.run(ATTACH, STAGE, STAGE)
        self.bad("had succeeded, and nothing was killed since", finished=False)

    def test_a_success_is_repeated_before_the_kill(self) -> None:
        self.trace.run(ATTACH, ATTACH)
        self.trace.kill("agent", "node-2")
        self.bad("had succeeded, and nothing was killed since", finished=False)

    def test_the_last_words_of_a_killed_agent(self) -> None:
        self.trace.kill("agent", "node-2")
        self.trace.run(ATTACH)
        self.trace.call(WHO, server="node-2", volume="")
        self.trace.run(ATTACH, DETACH)
        self.good()

    def test_the_first_words_of_the_next_agent(self) -> None:
        self.trace.kill("agent", "node-2")
        self.trace.call(WHO, server="node-2", volume="")
        self.trace.run(ATTACH, ATTACH)
        self.bad("had succeeded, and nothing was killed since", finished=False)

    def test_undo_of_nothing(self) -> None:
        self.trace.run(ATTACH, STAGE, UNPUBLISH)
        self.bad("undoes what was never done", finished=False)

    def test_begun_anew_before_the_undo_was_certain(self) -> None:
        self.trace.run(ATTACH, STAGE)
        self.trace.call(UNSTAGE, "Internal")
        self.trace.run(STAGE)
        self.bad("was undone for certain", finished=False)

    def test_left_behind(self) -> None:
        self.trace.run(ATTACH, STAGE, PUBLISH)
        self.bad("left published")
        self.bad("left staged")
        self.bad("left attached")

    def test_a_call_that_never_ended(self) -> None:
        self.trace.begin(ATTACH)
        self.bad("never ended")

    def test_a_question_that_a_driver_ends_in(self) -> None:
        self.trace.begin("Probe", volume="")
        self.good()
