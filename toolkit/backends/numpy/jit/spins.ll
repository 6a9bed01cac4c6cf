; Calibration of the time that threads spin, and of a yield that shows a busy processor.

declare void @pause()

define void @pauses(i64 %count) #0 {
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %i.next, %next ]
  call void @pause()
  %i.next = add i64 %i, 1
  %more = icmp ult i64 %i.next, %count
  br i1 %more, label %next, label %end
end:
  ret void
}

define void @set_limits(i64 %spins, i64 %long.yield) #0 {
  store i64 %spins, ptr @spins
  store i64 %long.yield, ptr @long.yield
  ret void
}

attributes #0 = { nounwind }
